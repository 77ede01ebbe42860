"""Bugs that pipelines had, each with the test that would have found it."""

from __future__ import annotations

import argparse
import subprocess
import sys
from typing import Any

import pytest
import torch

from hotloop.cli import evaluate, play
from hotloop.errors import HotloopError
from hotloop.training.agents import load

HALVES = """
from pathlib import Path
import numpy as np, torch
from hotloop.training.pipelines import sac_carracing
from hotloop.training.run.options import Options

class Seen(Exception):
    pass

def look(shell, agent):
    subnormal = torch.from_numpy(np.full(1 << 22, 100, np.int32).view(np.float32))
    left = (subnormal * 1.5).view(torch.int32) != 0
    print(left[: 1 << 21].sum().item(), left[1 << 21 :].sum().item())
    raise Seen

sac_carracing.prepare = look
try:
    sac_carracing.train(sac_carracing.Config(threads=2), Options(out=Path("OUT")))
except Seen:
    pass
"""


def test_torchs_helping_threads_compute_without_subnormal_numbers(tmp_path):
    """They had been started by the making of the agent, before subnormal numbers were switched off.

    Adam got slower and slower in the half of the weights that they work on; `hotloop explain` said so.
    """
    code = HALVES.replace("OUT", str(tmp_path / "run"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["0", "0"], done.stdout + done.stderr


@pytest.mark.parametrize("command", [evaluate, play])
def test_agents_play_with_one_thread(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With torch's two, an evaluation beside a training took three times as long, most of it spent waiting."""
    seen = []

    def load_agent(*_: object) -> None:
        seen.append(torch.get_num_threads())
        raise HotloopError("nothing to load")

    monkeypatch.setattr(load, "load_agent", load_agent)
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(HotloopError, match="nothing to load"):
            command.run(parser.parse_args(["nowhere"]))
        assert (seen, torch.get_num_threads()) == ([1], 2)
    finally:
        torch.set_num_threads(before)
