"""The examples run with the commands in their docstrings and print the expected output."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
HOTLOOP = [sys.executable, "-m", "hotloop.cli.main"]
needs_sb3 = pytest.mark.skipif(
    importlib.util.find_spec("stable_baselines3") is None, reason="stable-baselines3 is not installed"
)


def call(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    # One thread: with more, small networks on a busy machine wait for the second one.
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(list(map(str, words)), cwd=cwd, capture_output=True, text=True, env=env)
    assert done.returncode == 0, f"{words} exited {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def test_every_example_is_tested_here():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {
        "own_loop",
        "read_trace",
        "sb3_callback",
        "sb3_unmodified",
    }


def test_own_loop_example(tmp_path):
    shown = call(sys.executable, EXAMPLES / "own_loop.py", cwd=tmp_path).stdout
    for name in ("env.step", "policy.act", "replay.push", "replay.sample"):
        assert name in shown


@needs_sb3
def test_an_unmodified_sb3_script_and_its_trace_read_with_pandas(tmp_path):
    call(*HOTLOOP, "run", "--out", "run", EXAMPLES / "sb3_unmodified.py", cwd=tmp_path)
    shown = call(*HOTLOOP, "explain", "run", cwd=tmp_path).stdout
    assert "DQN.train" in shown and "env steps/s" in shown
    shown = call(sys.executable, EXAMPLES / "read_trace.py", "run", cwd=tmp_path).stdout
    table = {line[2:42].strip(): line for line in shown.splitlines()[1:]}
    assert {"ReplayBuffer.sample", "QNetwork", "backward"} & set(table), shown
    assert all(" s  " in line and line.endswith(" calls timed") for line in table.values())


@needs_sb3
def test_sb3_callback_example(tmp_path):
    done = call(sys.executable, EXAMPLES / "sb3_callback.py", cwd=tmp_path)
    for word in ("env_steps_per_s", "phase_env_share", "phase_backward_share", "overhead_share", "<Trace "):
        assert word in done.stdout
    assert "of the loop recorded" in done.stderr
    assert list(tmp_path.iterdir()) == []
