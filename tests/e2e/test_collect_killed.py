"""Workers and learners killed at any moment: no torn samples, nothing left behind, and training continues.

The long form is `make soak`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from tests.collecting import ROOT, check_batch, light_job, light_replay, light_weights, shared_memory

import hotloop
from hotloop.clock import now_ns
from hotloop.profiling.trace import summary
from hotloop.training.collect import Job, Recipe, WorkerOptions, Workers
from hotloop.training.replay import FrameReplay, Prioritised

KILLS = 4
TIMEOUT_S = 60.0

LEARNER = """
import sys, time
sys.path.insert(0, sys.argv[1])
from hotloop.training.collect import WorkerOptions, Workers
from tests.collecting import light_job, light_replay, light_weights, shared_memory
how = sys.argv[2]
workers = Workers(light_job(pause_s=0.001), light_replay(500), light_weights(), WorkerOptions(count=2))
if how == "starting":
    workers.start()
else:
    workers.collect(100)
print(*workers.processes, flush=True)
print(*shared_memory(), flush=True)
if how == "exit":
    sys.exit()
while True:
    time.sleep(0.1) if how == "starting" else workers.collect(50)
"""


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from hotloop.training.collect import WorkerOptions, Workers
from tests.collecting import light_job, light_replay, light_weights
options = WorkerOptions(count=2, lockstep=True)
with Workers(light_job(), light_replay(2000), light_weights(), options) as workers:
    print(sum(workers.collect(100).steps for _ in range(5)), flush=True)
"""


@pytest.fixture(autouse=True)
def importable_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


def until_timeout(pause_s: float = 0.05) -> Iterator[None]:
    end = now_ns() + round(TIMEOUT_S * 1e9)
    while now_ns() < end:
        yield
        time.sleep(pause_s)


def running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_repeatedly_killed_workers_are_restarted() -> None:
    replay = light_replay(400, prioritised=Prioritised())
    rng, chance = np.random.default_rng(0), np.random.default_rng(1)
    options = WorkerOptions(count=2, ahead=64, restarts=KILLS)
    with Workers(light_job(), replay, light_weights(), options) as workers:
        reasons, steps, version = [], 0, 1
        for _ in range(KILLS):
            workers.collect(200)
            pid = workers.processes[int(chance.integers(2))]
            time.sleep(float(chance.random()) * 0.02)
            os.kill(pid, signal.SIGKILL)
            for _ in until_timeout(0.0):
                result = workers.collect(20)
                steps += result.steps
                reasons += [each.reason for each in result.restarts]
                batch = replay.sample(32, rng)
                check_batch(batch)
                replay.update_priorities(batch.index, np.asarray(rng.random(32), np.float32))
                version += 1
                assert workers.publish(light_weights(float(version))) == version
                if len(reasons) and pid not in workers.processes:
                    break
        assert reasons == ["it was killed by SIGKILL"] * KILLS
        assert not workers.collect(400).restarts
        for _ in range(20):
            check_batch(replay.sample(64, rng))


@pytest.mark.parametrize("how", ["kill", "starting", "exit"])
def test_workers_end_when_the_learner_ends(how: str) -> None:
    learner = subprocess.Popen(
        [sys.executable, "-c", LEARNER, str(ROOT), how], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert learner.stdout is not None
    pids = [int(each) for each in learner.stdout.readline().split()]
    assert len(pids) == 2
    memory = {int(each) for each in learner.stdout.readline().split()}
    assert len(memory) == 3, "replay, control block and weights"
    if how == "kill":
        os.kill(pids[0], signal.SIGSTOP)  # a stopped process reacts to nothing but SIGKILL
    if how != "exit":
        learner.kill()
    assert learner.wait(TIMEOUT_S) == (0 if how == "exit" else -signal.SIGKILL)
    for _ in until_timeout():
        left = [each for each in pids if running(each)]
        if not left:
            break
    for each in left:
        os.kill(each, signal.SIGKILL)
    assert not left
    assert learner.communicate() == ("", "")
    assert not {each.pid for each in psutil.process_iter() if holds(each.pid, memory)}


def holds(pid: int, memory: set[int]) -> bool:
    """Return whether a process has any of this shared memory open."""
    try:
        return bool(shared_memory(pid) & memory)
    except OSError:
        return False  # it has ended


def test_processes_started_by_a_worker_end_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLEEPER", str(tmp_path / "pid"))
    options = WorkerOptions(count=1, ahead=0, first="tests.collecting:start_sleeper")
    with Workers(light_job(), light_replay(2000, lanes=1), light_weights(), options) as workers:
        workers.get_ready()
        sleeper = int((tmp_path / "pid").read_text())
        assert running(sleeper)
    for _ in until_timeout():
        if not running(sleeper):
            break
    assert not running(sleeper)


def test_workers_record_into_the_run_of_their_parent(tmp_path: Path) -> None:
    workers = Workers(light_job(), light_replay(2000, lanes=1), light_weights(), WorkerOptions(count=1, ahead=0))
    with hotloop.record(tmp_path / "run"), workers:
        workers.collect(500)
        (pid,) = workers.processes
    trace = hotloop.load(tmp_path / "run")
    (found,) = [each for each in trace.processes if each.pid == pid]
    names = {node.name for thread in found.threads for node in thread.nodes}
    assert {"env.step", "act", "replay.store"} <= names


def test_an_unmodified_script_is_recorded_with_its_workers(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    words = [sys.executable, "-m", "hotloop", "run", "--out", tmp_path / "run", script, ROOT]
    done = subprocess.run([*map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    trace = hotloop.load(tmp_path / "run")
    steps = [process.counts.get("env_steps", 0) for process in trace.processes]
    assert steps[0] == 0 and len(steps) == 3 and min(steps[1:]) > 0
    # Each step is counted once, by the worker that made it.
    assert summary.counts(trace).env_steps == sum(steps) == int(done.stdout.splitlines()[0])


def test_an_emulator_runs_in_a_worker() -> None:
    pytest.importorskip("stable_retro", reason="stable-retro is not installed: pip install 'hotloop[nes]'")
    job = Job(
        Recipe("hotloop.training.envs.nes:MarioEnv"),
        Recipe("tests.collecting:RandomPolicy", {"actions": 7}),
        frames_per_step=4,
        figures=("flag", "distance", "cause"),
    )
    replay = FrameReplay(2000, 1, (84, 84), storage="shared")
    with Workers(job, replay, {"w": np.zeros(1)}, WorkerOptions(count=1, ahead=0)) as workers:
        results = [workers.collect(100)]
        os.kill(workers.processes[0], signal.SIGKILL)
        results += [workers.collect(200), workers.collect(200)]
        assert [each.reason for one in results for each in one.restarts] == ["it was killed by SIGKILL"]
        assert all(one.frames == 4 * one.steps for one in results)
        episodes = [each for one in results for each in one.episodes]
        assert all(set(each.figures) == {"flag", "distance", "cause"} for each in episodes)
        assert replay.sample(64, np.random.default_rng(0)).obs.shape == (64, 4, 84, 84)
