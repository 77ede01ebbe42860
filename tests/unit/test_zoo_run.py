"""How zoo/run.py measures a gain: two scripts take turns, one stopped while the other runs."""

from __future__ import annotations

import importlib
import shutil
import sys
import time
from pathlib import Path
from types import ModuleType

import psutil
import pytest

ZOO = Path(__file__).resolve().parents[2] / "zoo"
SCRIPT = """
import subprocess, sys, time
from meter import Meter, parse_args
meter = Meter(parse_args(), warmup=3)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("something else")
while meter.more(2):
    time.sleep(0.001)
meter.report()
"""


@pytest.fixture
def zoo(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ZOO))
    monkeypatch.setattr("sys.modules", sys.modules | {"run": None})
    del sys.modules["run"]
    run = importlib.import_module("run")
    monkeypatch.setattr(run, "TURN_S", 0.02)
    return run


@pytest.fixture
def script(tmp_path: Path) -> Path:
    shutil.copy(next(ZOO.glob("*/meter.py")), tmp_path)
    (tmp_path / "slow.py").write_text(SCRIPT)
    return tmp_path / "slow.py"


def states(process: psutil.Process) -> set[str]:
    return {each.status() for each in (process, *process.children())}


def test_a_script_and_its_children_are_stopped_between_turns(zoo: ModuleType, script: Path) -> None:
    with zoo.Runner(script) as runner:
        process = psutil.Process(runner.process.pid)
        for _ in range(3):
            turn = runner.turn()
            assert turn["seconds"] >= 0.02
            assert turn["env_steps"] >= 2
            assert turn["env_steps"] <= 2 * 0.02 / 0.001 + 2, "the steps of this turn, not of all"
            for _ in range(500):
                if states(process) == {psutil.STATUS_STOPPED}:
                    break
                time.sleep(0.01)
            assert states(process) == {psutil.STATUS_STOPPED}
        family = [process, *process.children()]
    assert not psutil.wait_procs(family)[1], "no process is left"


def test_a_script_that_ends_too_early_is_reported_with_its_reason(zoo: ModuleType, script: Path) -> None:
    script.write_text("raise SystemExit('no such game')")
    with pytest.raises(zoo.CaseFailed, match="no such game"):
        zoo.Runner(script)


def test_every_case_has_the_same_meter_module() -> None:
    assert len({each.read_bytes() for each in ZOO.glob("*/meter.py")}) == 1


def test_recording_overhead_is_subtracted_from_the_speed(zoo: ModuleType) -> None:
    report = {"counts": {"env_steps": 900}, "wall_s": 10.0, "overhead_share": 0.1}
    assert zoo.unrecorded_speed(report) == pytest.approx(100.0)
