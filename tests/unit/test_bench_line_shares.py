"""bench/line_shares.py: what each tool prints is read right, and held against the clock of the same run."""

from __future__ import annotations

import importlib
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
PARTS = {
    "look up": {"share": 0.5, "own": True, "lines": [11, 12]},
    "learn": {"share": 0.25, "own": True, "lines": [2, 5], "function": "Agent.learn"},
    "step": {"share": 0.1, "own": False, "lines": [15, 15]},
}
TRUTH = {"parts": PARTS, "loop": [10, 20], "steps": 300, "seconds": 2.0}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCH))
    before = set(sys.modules)
    yield importlib.import_module("line_shares")
    for name in ("line_shares", "measure"):
        if name not in before:
            sys.modules.pop(name, None)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCH / "scripts" / "lines"))
    yield importlib.import_module("loop_clock")
    sys.modules.pop("loop_clock", None)


def truth_of(bench: ModuleType):
    return bench.read_truth("train.py", f"episode 1\n{json.dumps(TRUTH)}\nbye\n")


def test_the_truth_is_the_line_of_json_that_a_script_prints(bench: ModuleType) -> None:
    truth = truth_of(bench)
    assert truth.steps_per_s == 150
    assert truth.parts["learn"] == bench.Part(0.25, (2, 5), "Agent.learn")
    with pytest.raises(ValueError, match="no truth"):
        bench.read_truth("train.py", "Traceback")


def test_hotloop_is_asked_for_functions_where_the_part_is_one_and_else_for_lines(bench: ModuleType) -> None:
    lines = [("/a/train.py", 11, 0.3, "own code"), ("/a/train.py", 12, 0.1, "optimiser"), ("/a/other.py", 11, 0.2, "")]
    lines += [("/a/train.py", 3, 0.2, "own code"), ("/a/train.py", 15, 0.1, "env step")]
    functions = [("/a/train.py", "Agent.learn", 0.26), ("/a/train.py", "learn", 0.1), ("/a/other.py", "Agent.learn", 9)]
    explained = {
        "lines": [dict(zip(("file", "line", "share", "phase"), each, strict=True)) for each in lines],
        "functions": [dict(zip(("file", "function", "share"), each, strict=True)) for each in functions],
    }
    shares, misplaced = bench.by_hotloop(explained, truth_of(bench))
    assert shares == pytest.approx({"look up": 0.4, "learn": 0.26, "step": 0.1})
    assert misplaced == ("train.py:12 (look up): 10.0 % in 'optimiser'",)


def test_py_spy_counts_stacks_of_the_loop_by_their_innermost_own_line(bench: ModuleType) -> None:
    raw = """\
<module> (/a b/train.py:30);main (/a b/train.py:11) 40
<module> (/a b/train.py:30);main (/a b/train.py:12);sort (/lib/x.py:3);<lambda> (/lib/x.py:11) 10
<module> (/a b/train.py:30);main (/a b/train.py:12);__enter__ (/a b/loop_clock.py:5) 1
<module> (/a b/train.py:30);main (/a b/train.py:14);learn (/a b/train.py:4);helper (/a b/train.py:8) 49
<module> (/a b/train.py:1);_find_and_load (<frozen importlib._bootstrap>:1007) 500
_bootstrap (/lib/threading.py:1002);work (/a b/train.py:3) 100
"""
    assert bench.by_py_spy(raw, truth_of(bench)) == pytest.approx({"look up": 0.5, "learn": 0.49, "step": 0.0})
    assert bench.by_py_spy("", truth_of(bench))["learn"] == 0.0


def test_scalene_adds_up_its_kinds_of_time_without_imports(bench: ModuleType) -> None:
    def row(line: int, text: str, *percents: float) -> dict:
        kinds = zip(("n_cpu_percent_python", "n_cpu_percent_c", "n_sys_percent"), percents, strict=True)
        return {"lineno": line, "line": text, **dict(kinds)}

    lines = [row(1, "import torch\n", 50, 0, 0), row(4, "    x = y\n", 5, 10, 5), row(11, "        f()\n", 20, 0, 0)]
    profile = {"files": {"/a/train.py": {"lines": lines}, "/a/b.py": {"lines": [row(11, "g()\n", 9, 9, 9)]}}}
    assert bench.by_scalene(profile, truth_of(bench)) == pytest.approx({"look up": 0.5, "learn": 0.5, "step": 0.0})
    assert bench.by_scalene({}, truth_of(bench))["learn"] == 0.0


def seen(bench: ModuleType, steps: int, learn: float, shares: dict[str, float]):
    parts = PARTS | {"learn": PARTS["learn"] | {"share": learn}}
    return bench.Seen(bench.read_truth("train.py", json.dumps(TRUTH | {"parts": parts, "steps": steps})), shares)


def test_errors_are_against_the_same_run_and_costs_against_the_plain_one(bench: ModuleType) -> None:
    plain = seen(bench, 300, 0.25, {})
    ours = seen(bench, 240, 0.35, {"look up": 0.5, "learn": 0.32, "step": 0.11})
    assert ours.errors == pytest.approx({"look up": 0.0, "learn": -3.0, "step": 1.0})
    assert bench.distortion(ours, plain) == pytest.approx(10.0)
    found = {"train": {"plain": plain, "hotloop": ours}}
    assert bench.table(found)[2] == ["train", "learn", "35.0", "32.0 (-3.0) !", "none", "none"]
    cells = ["hotloop", "3.0 (train, learn)", "1.33", "10.0 (train)", "× 1.250", "× 1.25 (train)"]
    assert bench.totals(found)[1:] == [cells]


def test_a_script_times_its_parts_and_finds_them_in_its_own_text(
    clock: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "class Agent:\n"
        "    def learn(self):\n"
        "        def loss():\n"
        "            return 1\n"
        "for _ in clock.steps(1):\n"
        "    with clock.part('act'):\n"
        "        f(\n"
        "        )\n"
    )
    moments = itertools.count()
    monkeypatch.setattr(clock, "perf_counter", lambda: float(next(moments)))
    timed = clock.Clock(str(script))
    for step in timed.steps(6):
        with timed.part("act"), timed.part("loss", "Agent.learn.<locals>.loss", own=False):
            assert step == timed.done
    timed.report()
    assert json.loads(capsys.readouterr().out) == {
        "parts": {
            "act": {"share": 3 / 6, "own": True, "lines": [7, 8]},
            "loss": {"share": 1 / 6, "own": False, "lines": [3, 4], "function": "Agent.learn.<locals>.loss"},
        },
        "loop": [5, 8],
        "steps": 1,
        "seconds": 6.0,
    }
