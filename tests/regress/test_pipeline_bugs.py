"""Bugs that pipelines had, each with the test that would have found it."""

from __future__ import annotations

import subprocess
import sys

HALVES = """
from pathlib import Path
import numpy as np, torch
from hotloop.pipelines import sac_carracing
from hotloop.pipelines.options import Options

class Seen(Exception):
    pass

def look(shell, agent):
    subnormal = torch.from_numpy(np.full(1 << 22, 100, np.int32).view(np.float32))
    left = (subnormal * 1.5).view(torch.int32) != 0
    print(left[: 1 << 21].sum().item(), left[1 << 21 :].sum().item())
    raise Seen

sac_carracing.prepare = look
try:
    sac_carracing.train(sac_carracing.Config(threads=2), Options(out=Path("OUT"), profile=False))
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
