"""Recording under real conditions, in subprocesses without torch: kills, full disks, child processes, secrets."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path

import pytest

from hotloop.errors import RunNotFound, RunUnreadable
from hotloop.profiling.trace.load import load
from hotloop.profiling.trace.model import Process, Trace

HOTLOOP = [sys.executable, "-m", "hotloop.cli.main"]
LOOP = """
import sys, time
from hotloop import count, span

def loop(steps, pause=0.001):
    for _ in range(steps):
        with span("env.step"):
            time.sleep(pause)
        count("env_steps")
        with span("loss"):
            sum(range(2000))
        count("updates")
"""


def script(place: Path, body: str, name: str = "train.py") -> Path:
    path = place / name
    path.write_text(LOOP + textwrap.dedent(body))
    return path


def python(*words: object, cwd: Path, expect: int | None = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, *map(str, words)], cwd=cwd, capture_output=True, text=True)
    assert expect is None or done.returncode == expect, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def hotloop_run(*words: object, cwd: Path, expect: int | None = 0) -> subprocess.CompletedProcess[str]:
    return python(*HOTLOOP[1:], "run", *words, cwd=cwd, expect=expect)


def calls(process: Process) -> Counter[str]:
    found: Counter[str] = Counter()
    for thread in process.threads:
        for node in thread.nodes:
            if node.kind == "span":
                found[node.name] += node.calls
    return found


def assert_adds_up(trace: Trace) -> None:
    for process in trace.processes:
        for thread in process.threads:
            assert sum(node.self_ns for node in thread.nodes) == thread.wall_ns
            assert all(node.self_ns >= 0 for node in thread.nodes)


# -- how scripts end ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ending", "code", "message"),
    [
        ("pass", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("sys.exit('no more')", 1, "no more"),
        ("sys.exit()", 0, ""),
        ("raise ValueError('broken here')", 1, "ValueError: broken here"),
    ],
)
def test_the_run_is_complete_however_the_script_ends(tmp_path, ending, code, message):
    script(tmp_path, f"loop(30)\nprint('output')\n{ending}\n")
    done = hotloop_run("--out", "out", "train.py", cwd=tmp_path, expect=code)
    assert "output" in done.stdout
    assert message in done.stderr
    if "raise" in ending:
        assert 'train.py", line' in done.stderr
        assert "hotloop/profiling" not in done.stderr, "only the script's own frames are shown"
    trace = load(tmp_path / "out")
    assert (trace.state, trace.manifest["exit_code"]) == ("failed" if code else "finished", code)
    assert trace.main.counts["env_steps"] == trace.main.counts["updates"] == 30
    assert calls(trace.main)["env.step"] == 30
    assert_adds_up(trace)


def test_a_missing_script_prints_one_line_and_creates_no_run(tmp_path):
    done = hotloop_run("--out", "out", "train.py", cwd=tmp_path, expect=2)
    assert "no script" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_an_empty_script_does_not_crash(tmp_path):
    (tmp_path / "train.py").write_text("")
    hotloop_run("--out", "out", "train.py", cwd=tmp_path)
    try:
        assert_adds_up(load(tmp_path / "out"))
    except RunUnreadable as error:
        assert "out" in str(error)


def test_exit_code_and_handlers_of_the_script_are_kept(tmp_path):
    script(
        tmp_path,
        """
        import atexit, signal, os
        atexit.register(lambda: print("at exit"))
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(17))
        loop(20)
        os.kill(os.getpid(), signal.SIGTERM)
        loop(20000)
        """,
    )
    done = hotloop_run("--out", "out", "train.py", cwd=tmp_path, expect=17)
    assert "at exit" in done.stdout
    assert load(tmp_path / "out").main.counts["env_steps"] == 20


def test_a_run_is_readable_while_running_and_after_being_killed(tmp_path):
    script(tmp_path, "print('go', flush=True)\nloop(100000)\n")
    process = subprocess.Popen([*HOTLOOP, "run", "--out", "out", "train.py"], cwd=tmp_path, stderr=subprocess.DEVNULL)
    try:
        going = wait_until_loadable(tmp_path / "out", seconds=2.0)
        assert going.state == "running"
        assert_adds_up(going)
        before = (tmp_path / "out").stat().st_mtime
        assert before
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    trace = load(tmp_path / "out")
    assert trace.state == "killed"
    assert any("killed" in each for each in trace.warnings)
    assert trace.main.counts["env_steps"] >= going.main.counts["env_steps"] > 0
    assert trace.wall_s >= going.wall_s
    assert_adds_up(trace)


def wait_until_loadable(path: Path, seconds: float) -> Trace:
    for _ in range(300):
        try:
            trace = load(path)
            if trace.wall_s >= seconds:
                return trace
        except (RunNotFound, RunUnreadable):
            pass
        time.sleep(0.1)
    raise AssertionError("no readable run after 30 s")


# -- unwritable directories ------------------------------------------------------------------------------------


def test_a_directory_that_cannot_be_created_gives_one_warning(tmp_path):
    script(tmp_path, "loop(30)\nprint('trained')\nsys.exit(5)\n")
    (tmp_path / "file").write_text("in the way")
    done = hotloop_run("--out", "file/out", "train.py", cwd=tmp_path, expect=5)
    assert "trained" in done.stdout
    assert done.stderr.count("the script runs without recording") == 1
    assert "Traceback" not in done.stderr


def test_a_directory_deleted_while_recording_gives_one_warning(tmp_path):
    script(
        tmp_path,
        """
        import shutil
        loop(50)
        shutil.rmtree("out")
        loop(1500)
        print("trained")
        sys.exit(5)
        """,
    )
    done = hotloop_run("--out", "out", "train.py", cwd=tmp_path, expect=5)
    assert "trained" in done.stdout
    assert done.stderr.count("Check the free space and permissions of") == 1, done.stderr
    assert "Traceback" not in done.stderr


def test_a_full_disk_gives_one_warning_and_training_continues(tmp_path):
    script(
        tmp_path,
        """
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        loop(50)
        recorder = 0
        try:
            from hotloop.spans import _hot_path
            while not recorder:
                loop(50)
                recorder = _hot_path.get("recorder_pid")
        except ImportError:
            pass
        resource.prlimit(recorder, resource.RLIMIT_FSIZE, (600, 600))
        loop(1500)
        sys.stdout.write("trained")
        sys.exit(5)
        """,
    )
    done = hotloop_run("--out", "out", "train.py", cwd=tmp_path, expect=5)
    assert "trained" in done.stdout
    assert done.stderr.count("Check the free space and permissions of") == 1, done.stderr
    assert done.stderr.count("hotloop:") == 1, "a failure prints one line"
    assert "Traceback" not in done.stderr
    try:
        trace = load(tmp_path / "out")
    except RunUnreadable:
        return  # nothing complete was written yet
    assert (
        any("the recorder stopped before the script did" in each for each in trace.warnings) or trace.state == "killed"
    )


# -- the requested window --------------------------------------------------------------------------------------


def test_after_and_for_are_accurate_to_a_fraction_of_a_second(tmp_path):
    script(tmp_path, "loop(1600)")
    hotloop_run("--after", "0.5s", "--for", "0.7", "--out", "out", "train.py", cwd=tmp_path)
    assert 0.6 <= load(tmp_path / "out").wall_s <= 0.95


@pytest.mark.parametrize(("after", "start"), [("60s", "--after 60s"), ("100000", "--after 100000 environment steps")])
def test_a_start_that_is_never_reached_is_reported(tmp_path, after, start):
    script(tmp_path, "loop(50)")
    hotloop_run("--after", after, "--out", "out", "train.py", cwd=tmp_path)
    with pytest.raises(RunUnreadable, match=f"ended before {start}"):
        load(tmp_path / "out")


# -- time -----------------------------------------------------------------------------------------------------


def test_a_wall_clock_that_jumps_changes_nothing(tmp_path):
    body = """
    import hotloop
    from hotloop.profiling.recorder import session, writer
    jumps = iter(range(10**18, 0, -(3600 * 10**9)))
    writer.wall_ns = session.wall_ns = lambda: next(jumps)
    with hotloop.record("out"):
        loop(300)
    """
    python(script(tmp_path, body), cwd=tmp_path)
    trace = load(tmp_path / "out")
    assert trace.state == "finished"
    assert trace.main.counts["env_steps"] == 300
    assert 0.3 < trace.wall_s < 60
    assert 0 <= trace.manifest["seconds"] < 60
    assert_adds_up(trace)


def test_a_window_of_the_run_is_recorded_and_the_rest_is_not(tmp_path):
    script(tmp_path, "loop(2500)\n")
    hotloop_run("--out", "whole", "train.py", cwd=tmp_path)
    hotloop_run("--out", "steps", "--after", "400", "train.py", cwd=tmp_path)
    hotloop_run("--out", "seconds", "--after", "1s", "--for", "1", "train.py", cwd=tmp_path)
    whole, steps, seconds = (load(tmp_path / name) for name in ("whole", "steps", "seconds"))
    assert whole.main.counts["env_steps"] == 2500
    assert 0 < steps.main.counts["env_steps"] <= 2100
    assert 0 < seconds.main.counts["env_steps"] < 2500
    # Both ends are checked once a second.
    assert seconds.wall_s < whole.wall_s - 0.5
    for trace in (whole, steps, seconds):
        assert trace.state == "finished"
        assert_adds_up(trace)
        # A call may start before the window and be counted inside it.
        assert calls(trace.main)["env.step"] == pytest.approx(trace.main.counts["env_steps"], abs=5)


# -- the script's own settings ---------------------------------------------------------------------------------

BLAS_THREADS = """
import ctypes, glob, os
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy
(library,) = glob.glob(os.path.join(os.path.dirname(numpy.__file__), "..", "numpy.libs", "*openblas*"))
print("threads", ctypes.CDLL(library).scipy_openblas_get_num_threads64_())
"""


def test_thread_counts_set_before_importing_numpy_take_effect(tmp_path):
    (tmp_path / "threads.py").write_text(BLAS_THREADS)
    plain = python("threads.py", cwd=tmp_path, expect=None)
    if plain.returncode or (os.cpu_count() or 1) < 2:
        pytest.skip("numpy does not use OpenBLAS here, or there is only one core")
    assert plain.stdout == hotloop_run("--out", "out", "threads.py", cwd=tmp_path).stdout == "threads 1\n"


# -- sessions -------------------------------------------------------------------------------------------------


def test_recordings_can_be_consecutive_but_not_simultaneous(tmp_path):
    body = """
    import hotloop
    with hotloop.record("one"):
        loop(30)
        try:
            hotloop.record("two")
        except hotloop.HotloopError as error:
            print("refused:", error)
    loop(10)
    with hotloop.record("three"):
        loop(40)
    try:
        hotloop.record("three")
    except hotloop.HotloopError as error:
        print("not empty:", error)
    """
    done = python(script(tmp_path, body), cwd=tmp_path)
    assert "refused: already recording into" in done.stdout
    assert "not empty: three is not an empty directory" in done.stdout
    assert not (tmp_path / "two").exists()
    assert load(tmp_path / "one").main.counts["env_steps"] == 30
    assert load(tmp_path / "three").main.counts["env_steps"] == 40
    assert calls(load(tmp_path / "three").main)["env.step"] == 40


def test_threads_have_their_own_tables(tmp_path):
    body = """
    import threading, hotloop
    with hotloop.record("out"):
        threads = [threading.Thread(target=loop, args=(n,), name=f"collector {n}") for n in (40, 60)]
        [each.start() for each in threads]
        loop(100)
        [each.join() for each in threads]
    """
    python(script(tmp_path, body), cwd=tmp_path)
    trace = load(tmp_path / "out")
    names = {thread.name: thread for thread in trace.main.threads}
    assert {"MainThread", "collector 40", "collector 60"} <= set(names)
    assert "hotloop" not in names
    assert trace.main.counts["env_steps"] == 200
    assert calls(trace.main)["env.step"] == 200
    assert_adds_up(trace)


# -- child processes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_child_processes_are_recorded(tmp_path, method):
    body = f"""
    import multiprocessing

    def child(steps):
        loop(steps)

    if __name__ == "__main__":
        context = multiprocessing.get_context({method!r})
        loop(20)
        children = [context.Process(target=child, args=(n,), name=f"child-{{n}}") for n in (150, 250)]
        [each.start() for each in children]
        loop(1500)
        [each.join() for each in children]
        loop(100)
        print("codes", [each.exitcode for each in children])
    """
    script(tmp_path, body)
    done = hotloop_run("--out", "out", "train.py", cwd=tmp_path)
    assert "codes [0, 0]" in done.stdout
    trace = load(tmp_path / "out")
    found = {process.name: process for process in trace.processes}
    assert trace.main.counts["env_steps"] == 1620
    for n in (150, 250):
        process = found[f"child-{n}"]
        assert process.counts["env_steps"] == n
        assert calls(process)["env.step"] == n
        assert process.state == "finished"
        assert process.start_ns >= trace.main.start_ns
        assert process.end_ns <= trace.main.end_ns
    assert calls(trace.main)["env.step"] == 1620
    assert_adds_up(trace)


# -- secrets --------------------------------------------------------------------------------------------------


def test_no_file_contains_secrets_of_the_command_or_the_configuration(tmp_path):
    secrets = {
        "--wandb-key": "hunter2-key-value",
        "--password": "correct-horse",
        "url": "battery-staple",
        "config": "configured-secret",
        "environment": "environment-secret",
        "token": "ghp_" + "a1B2" * 9,
    }
    body = f"""
    import hotloop, multiprocessing

    if __name__ == "__main__":
        config = {{"lr": 0.125, "api": {{"api_key": {secrets["config"]!r}}}}}
        with hotloop.record("out", config=config):
            loop(30)
            child = multiprocessing.get_context("spawn").Process(target=loop, args=(10,))
            child.start()
            child.join()
    """
    path = script(tmp_path, body)
    words = [
        "--wandb-key", secrets["--wandb-key"], f"--password={secrets['--password']}",
        f"https://me:{secrets['url']}@example.com/x", secrets["token"], "--lr", "0.5",
    ]  # fmt: skip
    environment = os.environ | {"SERVICE_TOKEN": secrets["environment"]}
    subprocess.run([sys.executable, str(path), *words], cwd=tmp_path, env=environment, check=True)
    files = [each for each in (tmp_path / "out").rglob("*") if each.is_file()]
    assert len(files) > 5
    for file in files:
        content = file.read_bytes()
        for secret in secrets.values():
            assert secret.encode() not in content, f"{secret} is in {file.name}"
    manifest = json.loads((tmp_path / "out" / "run.json").read_text())
    assert manifest["command"][-2:] == ["--lr", "0.5"], "harmless values are kept"
    assert manifest["config"]["lr"] == 0.125


# -- runs that cannot be read ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("small")
    python(script(place, "import hotloop\nwith hotloop.record('out'):\n    loop(30)\n"), cwd=place)
    return place / "out"


def explain(path: Path, expect: int) -> subprocess.CompletedProcess[str]:
    return python(*HOTLOOP[1:], "explain", path, cwd=path.parent, expect=expect)


@pytest.mark.parametrize("kind", ["newer", "foreign", "empty", "truncated", "missing", "no process"])
def test_unreadable_runs_are_reported_in_one_line(tmp_path, small_run, kind):
    target = tmp_path / "run"
    if kind not in ("missing", "empty"):
        shutil.copytree(small_run, target)
    if kind == "empty":
        target.mkdir()
    elif kind == "newer":
        manifest = json.loads((target / "run.json").read_text())
        (target / "run.json").write_text(json.dumps(manifest | {"format": 99}))
    elif kind == "foreign":
        (target / "run.json").write_text(json.dumps({"name": "somebody else's"}))
    elif kind == "truncated":
        (target / "run.json").write_text((target / "run.json").read_text()[:40])
    elif kind == "no process":
        for each in target.glob("*/process.json"):
            each.unlink()
    with pytest.raises((RunUnreadable, RunNotFound)):
        load(target)
    done = explain(target, expect=2)
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("hotloop: ")
    assert done.stdout == ""
