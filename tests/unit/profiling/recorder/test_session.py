"""A recording of this process: its directory, its manifest, its end."""

from __future__ import annotations

import gc
import json
import os
import shutil
import threading
import warnings

import pytest
from tests.disks import full_disk

import hotloop
from hotloop import default_run_path
from hotloop.default_run_path import default_path
from hotloop.errors import HotloopError
from hotloop.profiling.recorder.session import current_path, record
from hotloop.profiling.trace.load import load
from hotloop.spans import hot_path, registry


def work() -> None:
    for _ in range(20):
        with registry.span("session.work"):
            sum(range(2000))
        registry.count("session_counted", 2)


def test_the_manifest_says_what_was_run_and_how_it_ended(tmp_path):
    with record(tmp_path / "run", config={"lr": 0.5, "password": "x"}, command=["train.py", "--seed", "1"]) as running:
        going = json.loads((tmp_path / "run" / "run.json").read_text())
        assert going["state"] == "running"
        assert registry.recording()
        work()
    done = json.loads((tmp_path / "run" / "run.json").read_text())
    assert done["state"] == "finished"
    assert (done["command"], done["config"]) == (["train.py", "--seed", "1"], {"lr": 0.5, "password": "***"})
    assert done["pid"] == os.getpid()
    assert {"format", "machine", "versions", "options", "started_unix_ns", "seconds"} <= set(done)
    assert not registry.recording()
    assert running.path == tmp_path / "run"
    trace = load(tmp_path / "run")
    assert trace.main.counts["session_counted"] == 40
    assert trace.state == "finished"


def test_nothing_is_left_behind_in_the_process(tmp_path):
    before = dict(os.environ), list(gc.callbacks), threading.active_count()
    with record(tmp_path / "run"):
        assert current_path() == tmp_path / "run"
        assert "start_here" in registry.child_program
        assert dict(os.environ) == before[0]
        assert (threading.active_count() > before[2]) is not hot_path.ACCELERATED
    after = dict(os.environ), list(gc.callbacks), threading.active_count()
    assert after == before
    assert current_path() is None
    assert registry.child_program == ""


def test_an_error_inside_passes_through_and_closes_the_run(tmp_path):
    with pytest.raises(ZeroDivisionError), record(tmp_path / "run"):
        work()
        raise ZeroDivisionError
    trace = load(tmp_path / "run")
    assert (trace.state, trace.manifest["exit_code"]) == ("failed", 1)
    assert not registry.recording()


@pytest.mark.parametrize(
    ("error", "code", "state"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (SystemExit(), 0, "finished"),
        (SystemExit(0), 0, "finished"),
        (SystemExit(4), 4, "failed"),
        (SystemExit("no data"), 1, "failed"),
    ],
)
def test_the_manifest_tells_what_ended_the_run(tmp_path, error, code, state):
    with pytest.raises(type(error)), record(tmp_path / "run"):
        raise error
    done = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (done["state"], done["exit_code"]) == (state, code)


def test_stopping_twice_is_stopping_once(tmp_path):
    running = record(tmp_path / "run")
    work()
    running.stop()
    content = (tmp_path / "run" / "run.json").read_bytes()
    running.stop()
    assert (tmp_path / "run" / "run.json").read_bytes() == content


def test_a_second_recording_is_refused_and_the_first_goes_on(tmp_path):
    with record(tmp_path / "one"):
        with pytest.raises(hotloop.HotloopError, match=r"already recording into .*one: stop it"):
            record(tmp_path / "two")
        work()
    assert load(tmp_path / "one").main.counts["session_counted"] == 40
    assert not (tmp_path / "two").exists()


def test_a_directory_with_something_in_it_is_refused(tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(hotloop.HotloopError, match="is not an empty directory"):
        record(tmp_path)
    with pytest.raises(hotloop.HotloopError, match="is not an empty directory"):
        record(tmp_path / "mine.txt")
    assert not registry.recording()
    assert [each.name for each in tmp_path.iterdir()] == ["mine.txt"]


def test_a_place_that_cannot_be_written_is_one_line_and_not_an_error(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with record(tmp_path / "file" / "run"):
            work()
            assert not registry.recording()
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "training continues without recording" in said
    with record(tmp_path / "after"):
        work()
    assert load(tmp_path / "after").main.counts["session_counted"] == 40


def test_a_failing_recorder_is_one_line_and_not_an_error(tmp_path, capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with record(tmp_path / "run") as running:
            shutil.rmtree(tmp_path / "run")  # what is to be written there fails
            (tmp_path / "run").write_text("")
            work()
    said = capfd.readouterr().err
    assert said.count("\n") == 1, said
    assert said.startswith("hotloop: ")
    assert running.path == tmp_path / "run"
    assert not registry.recording()


def test_default_directories_never_clash(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(default_run_path, "datetime", FixedTime)
    first = default_path(["some/train.py"])
    first.mkdir(parents=True)
    second = default_path(["some/train.py"])
    assert (first.parts, second.parts) == (("runs", "19700101-train"), ("runs", "19700101-train-2"))
    assert default_path([]).name == "19700101-run"


class FixedTime:
    @classmethod
    def now(cls) -> FixedTime:
        return cls()

    def strftime(self, form: str) -> str:
        return "19700101"


class OneGpu:
    """Stands in for torch.cuda on a machine that has one."""

    @staticmethod
    def get_device_name() -> str:
        return "Some GPU"


def test_the_manifest_names_the_gpu_that_was_used(tmp_path, monkeypatch):
    with record(tmp_path / "run"):
        monkeypatch.setattr("hotloop.profiling.recorder.session.cuda_in_use", OneGpu)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["machine"]["gpu"] == "Some GPU"


def test_a_directory_that_a_full_disk_leaves_without_a_manifest_is_removed(tmp_path, capsys):
    (tmp_path / "there").mkdir()
    with full_disk():
        for name in ("new", "there"):
            with record(tmp_path / name):
                pass
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    assert not any((tmp_path / "there").iterdir())
    assert capsys.readouterr().err.count("training continues without recording") == 2


def test_a_path_that_cannot_be_one_is_refused_in_one_line():
    for path in ("", "a\0b"):
        with pytest.raises(HotloopError, match=r"the run directory is .*: give a path"):
            record(path)
