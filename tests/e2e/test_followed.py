"""The main thread of a script is followed in windows, and the script prints the same as without them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hotloop.profiling.trace.load import load

observer = pytest.importorskip("hotloop.profiling.recorder._observer")
pytestmark = pytest.mark.skipif(not observer.SUPPORTED, reason="the main thread is followed on Python 3.11")

SCRIPT = """
import sys, time
import numpy as np
from hotloop import count

class Buffer:
    def __init__(self):
        self.rows = [np.ones((3, 2), np.float32)] * 4
    def add(self, row):
        self.rows.append(row)
    def sample(self):
        return np.stack(self.rows[-4:])

def frames():
    while True:
        yield np.ones((3, 2), np.float32)

buffer, made, total = Buffer(), frames(), 0.0
settings = set()
end = time.monotonic() + 3.5
while time.monotonic() < end:
    buffer.add(next(made))
    count("env_steps")
    total = float(buffer.sample().sum()) + total * 0
    settings.add((sys.gettrace(), sys.getprofile()))
    time.sleep(0.002)
print(total > 0, settings, made.gi_frame.f_trace_lines, made.gi_frame.f_trace_opcodes)
"""


def run(words: list[str], cwd: Path) -> str:
    done = subprocess.run([sys.executable, *words], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_script_is_followed_and_prints_the_same(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    recorded = run(["-m", "hotloop", "run", "--out", "out", "train.py"], tmp_path)
    assert recorded == run(["train.py"], tmp_path)
    observed = load(tmp_path / "out").observed
    places = [observed.places[number] for number in observed.passes]
    calls = {place.callee: place.operands for place in places if place.callee}
    assert calls["numpy.stack"] == ("list of 4 × array float32 [3, 2]",)
    assert calls["numpy.ndarray.sum"] == ("array float32 [4, 3, 2]",)
    assert calls["__main__.Buffer.add"] == ("__main__.Buffer", "array float32 [3, 2]")
    assert sum(window.counts["env_steps"] for window in observed.record.windows) > 0
