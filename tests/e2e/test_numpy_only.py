"""A script that uses only NumPy is recorded and explained, on each version of Python that profiling supports."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("hotloop.profiling.recorder._stack_reader", reason="without C the shares of lines are rough")

SCRIPT = """\
import json, time
import numpy as np
from hotloop import count, span

rng = np.random.default_rng(0)
values = rng.random(1500).tolist()
spent = [0.0, 0.0]

def rank():
    return sorted(values)

def pure():
    total = 0
    for i in range(3000):
        total += i * i % 7
    return total

begin = time.perf_counter()
while time.perf_counter() < begin + 4:
    with span("env.step"):
        np.linalg.norm(rng.random(2000))
        count("env_steps")
    first = time.perf_counter()
    rank()
    second = time.perf_counter()
    pure()
    spent = [spent[0] + second - first, spent[1] + time.perf_counter() - second]
whole = time.perf_counter() - begin
print(json.dumps([each / whole for each in spent]))
"""


def test_a_numpy_script_is_recorded_and_explained(tmp_path):
    def hotloop(*words: str) -> str:
        command = [sys.executable, "-m", "hotloop", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    (tmp_path / "loop.py").write_text(SCRIPT)
    rank, pure = json.loads(hotloop("run", "--out", "run", "loop.py"))
    report = json.loads(hotloop("explain", "run", "--json"))
    functions = {each["function"]: each for each in report["functions"]}
    shares = {name: each["self_share"] for name, each in functions.items()}
    assert (shares["rank"], shares["pure"]) == pytest.approx((rank, pure), abs=0.08)
    lines = {each["function"]: each for each in report["lines"][::-1]}
    assert (lines["rank"]["callee"], lines["pure"]["line"]) == ("sorted", 15)
    # On a busy machine a window has few steps, of which the first and the last are cut.
    per_step = {name: each["calls_per_env_step"] for name, each in functions.items()}
    assert 0.5 <= per_step["rank"] <= 2
    assert 0.5 <= per_step["pure"] <= 2
