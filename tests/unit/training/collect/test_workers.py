"""InProcess and Workers: same steps, correct counts, replaced workers, rejected arguments."""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from tests.collecting import ROOT, check_batch, light_job, light_replay, light_weights

from hotloop.clock import now_ns
from hotloop.errors import HotloopError
from hotloop.training.collect import Collected, CollectError, Episode, InProcess, Job, Recipe, WorkerOptions, Workers
from hotloop.training.collect import control_block as control
from hotloop.training.collect.player import plain_figures
from hotloop.training.collect.worker_handle import HangDetector, WorkerHandle
from hotloop.training.collect.worker_main import Outbox
from hotloop.training.replay import FrameReplay, ReplayError
from hotloop.training.replay.writers import LaneWriter

TIMEOUT_S = 90.0


@pytest.fixture(autouse=True)
def importable_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers import from the `sys.path` of this process."""
    monkeypatch.syspath_prepend(str(ROOT))


def until_timeout(pause_s: float = 0.02) -> Iterator[None]:
    end = now_ns() + round(TIMEOUT_S * 1e9)
    while now_ns() < end:
        yield
        time.sleep(pause_s)


def steps_in(replay: FrameReplay) -> int:
    """Count the steps in a replay that has not wrapped around, from its records alone."""
    heads, flags = replay.ring.heads, replay.ring.records["flags"]
    return sum(int(((flags[lane, : heads[lane]] & 8) == 0).sum()) for lane in range(len(heads)))


def collect_all(collector: InProcess | Workers, chunks: list[int]) -> list[Collected]:
    return [collector.collect(each) for each in chunks]


def test_two_workers_fill_a_replay_with_intact_steps() -> None:
    replay, rng = light_replay(40_000), np.random.default_rng(0)
    with Workers(light_job(), replay, light_weights(), WorkerOptions(count=2, ahead=100)) as workers:
        results, sampled, requested = [], set(), 3000
        for _ in until_timeout():  # until both have started
            results.append(workers.collect(20))
            requested += 20
            if min(replay.ring.heads) > 50:
                break
        for k in range(30):
            results.append(workers.collect(100))
            batch = replay.sample(32, rng)
            workers.sampled(batch.index)
            sampled |= check_batch(batch)
            assert workers.publish(light_weights(k + 2.0)) == k + 2
        pids = workers.processes
        assert all(psutil.pid_exists(each) for each in pids)
    assert not any(psutil.pid_exists(each) for each in pids)
    made = sum(each.steps for each in results)
    assert requested <= made <= requested + 100 + 2 * 16
    assert all(each.frames == each.steps for each in results)
    assert made <= steps_in(replay) <= made + 2 * 16 + 100  # some arrive after the last count
    assert min(replay.ring.heads) > 50
    episodes = [each for one in results for each in one.episodes]
    assert {each.lane for each in episodes} == {0, 1}
    for each in episodes:
        assert each.figures["distance"] == each.length
        assert each.returned == each.length * (each.length - 1) / 2
        assert each.figures["flag"] is bool(each.length % 2)
        assert set(each.figures) == {"episode", "flag", "distance"}
    assert sum(each.length for each in episodes) <= made
    assert len({each[0] for each in sampled}) > 20
    assert not any(each.restarts for each in results)
    assert all(each.overwritten == 0 for each in results)
    spent = [getattr(results[-1].spent, each.name) for each in fields(results[-1].spent)]
    assert min(spent) >= 0 and sum(one.spent.env_s for one in results) > 0


def test_workers_stop_when_they_are_far_enough_ahead() -> None:
    replay = light_replay(2000)
    with Workers(light_job(), replay, light_weights(), WorkerOptions(count=2, ahead=200)) as workers:
        first = workers.collect(50)
        for _ in until_timeout():
            if steps_in(replay) >= 250:
                break
        time.sleep(0.3)
        assert 250 <= steps_in(replay) <= 250 + 2 * 16
        result = workers.collect(1)
        assert first.steps + result.steps >= 250
        waited_s = result.spent.ratio_s
        for _ in until_timeout():  # a wait is reported when it is over, by whichever worker gets the processor
            if waited_s > 0.2:
                break
            waited_s += workers.collect(200).spent.ratio_s
        assert waited_s > 0.2


def test_new_weights_reach_all_workers() -> None:
    with Workers(light_job(), light_replay(2000), light_weights(), WorkerOptions(count=2, ahead=0)) as workers:
        versions = set()
        for k in range(5):
            newest = workers.publish(light_weights(k + 2.0))
            for _ in until_timeout():
                result = workers.collect(100)
                versions |= {each.version for each in result.episodes}
                if newest in versions and result.lag == 0:
                    break
            assert newest in versions and result.lag == 0
        assert versions >= set(range(2, 7))


def run_lockstep(seed: int, workers: int, **options: Any) -> tuple[dict[str, np.ndarray], list[Collected]]:
    replay = light_replay(500, lanes=2)
    chosen = WorkerOptions(count=workers, lockstep=True)
    with Workers(light_job(seed, **options), replay, light_weights(), chosen) as collector:
        results = collect_all(collector, [64, 3, 100, 256])
        collector.publish(light_weights(2.0))
        results += collect_all(collector, [300, 500])
        for one in results:
            assert not one.restarts
    return replay.state(), results


def assert_same_results(a: list[Collected], b: list[Collected]) -> None:
    for one, other in zip(a, b, strict=True):
        key = lambda each: each.lane  # noqa: E731
        assert sorted(one.episodes, key=key) == sorted(other.episodes, key=key)
        assert (one.steps, one.frames, one.overwritten) == (other.steps, other.frames, other.overwritten)


def same_state(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return all(np.array_equal(a[name], b[name]) for name in ("heads", "words", "frames"))


def test_lockstep_is_reproducible_whatever_the_timing() -> None:
    state, results = run_lockstep(5, 2)
    again, results_again = run_lockstep(5, 2, pause_s=0.002)
    assert same_state(state, again)
    assert_same_results(results, results_again)
    assert [one.steps for one in results] == [64, 4, 100, 256, 300, 500]
    assert results[-1].overwritten > 0
    other, _ = run_lockstep(6, 2)
    assert not same_state(state, other)


def test_lockstep_equals_in_process() -> None:
    state, results = run_lockstep(5, 1)
    replay = light_replay(500, lanes=2)
    with InProcess(light_job(5), replay, light_weights()) as collector:
        here = collect_all(collector, [64, 3, 100, 256])
        assert collector.publish(light_weights(2.0)) == 2
        here += collect_all(collector, [300, 500])
    assert same_state(state, replay.state())
    assert_same_results(results, here)


def test_a_policy_gets_the_steps_of_all_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests import collecting

    steps_given: list[int] = []
    act = recording_steps(steps_given, collecting.LightPolicy.act)
    monkeypatch.setattr(collecting.LightPolicy, "act", act)
    with InProcess(light_job(), light_replay(200, lanes=3), light_weights()) as collector:
        collector.collect(7)
        state = json.loads(json.dumps(collector.state()))
        collector.restore(state)
        collector.collect(1)
        assert collector.collect(5).steps == 6
    assert steps_given == [0, 3, 6, 9, 12]


def recording_steps(given: list[int], act: Any) -> Any:
    def record_and_act(self: Any, stacks: np.ndarray, steps: int, rng: np.random.Generator) -> np.ndarray:
        given.append(steps)
        return act(self, stacks, steps, rng)

    return record_and_act


@pytest.mark.parametrize("lockstep", [False, True])
def test_a_resumed_run_continues_with_new_episodes(lockstep: bool) -> None:
    replay, options = light_replay(3000), WorkerOptions(count=2, ahead=0, lockstep=lockstep)
    with Workers(light_job(), replay, light_weights(), options) as workers:
        workers.collect(200)
        state = json.loads(json.dumps(workers.state()))
    kept = replay.state()
    before = sum(state["steps"])
    again = light_replay(3000)
    again.restore(kept)
    with Workers(light_job(), again, light_weights(), options) as workers:
        workers.restore(state)
        result = workers.collect(300)
        with pytest.raises(CollectError, match="before collect and start"):
            workers.restore(state)
        after = sum(workers.state()["steps"])
        assert workers.state()["life"] == 1
    assert after - state["told"] >= result.steps >= 500 - before
    assert not lockstep or after - before == result.steps == 300
    check_batch(again.sample(300, np.random.default_rng(0)))
    # Seeds differ from those before, so no episode occurs twice. On a busy machine one worker may have done it all.
    ring, names = again.ring, []
    for lane, head in enumerate(ring.heads):
        begins = np.flatnonzero(ring.records["flags"][lane, :head] & 4) + lane * ring.shape.length
        names += [ring.block.arrays["frames"][each, :4].tobytes() for each in begins]
    assert len(names) == len(set(names)) > 10


def test_steps_that_arrive_while_a_checkpoint_is_saved_are_counted_after_resuming() -> None:
    replay, options = light_replay(3000), WorkerOptions(count=2, ahead=200)
    with Workers(light_job(), replay, light_weights(), options) as workers:
        reported = workers.collect(50).steps
        state = json.loads(json.dumps(workers.state()))
        # Allow 50 more, so that steps arrive after the state was taken even if workers had reached their limit.
        workers.collect(50)
        for _ in until_timeout():
            if steps_in(replay) >= 300:
                break
    made = steps_in(replay)
    assert state["told"] == reported < made
    again = light_replay(3000)
    again.restore(replay.state())
    with Workers(light_job(), again, light_weights(), options) as workers:
        workers.restore(state)
        assert sum(workers.state()["steps"]) == made
        assert workers._report(0.0).steps == made - reported


def test_get_ready_starts_workers_without_collecting() -> None:
    replay = light_replay(3000)
    with Workers(light_job(), replay, light_weights(), WorkerOptions(count=2, ahead=0)) as workers:
        workers.get_ready()
        pids = workers.processes
        assert [each.ready for each in workers._workers] == [True, True]
        time.sleep(0.3)
        assert replay.ring.heads.tolist() == [0, 0], "no steps before the first collect"
        result = workers.collect(100)
        assert workers.processes == pids and not result.restarts
    refused = Workers(light_job(trouble="refuse"), light_replay(3000), light_weights(), WorkerOptions(count=2))
    with refused, pytest.raises(CollectError, match="not for you"):
        refused.get_ready()


def test_steps_lost_with_a_worker_are_counted() -> None:
    job, replay = light_job(trouble="die", at=50), light_replay(3000, lanes=1)
    workers = Workers(job, replay, light_weights(), WorkerOptions(count=1, ahead=0, restarts=1))
    with workers, pytest.raises(CollectError, match="SIGKILL"):
        workers.collect(1000)
    # Two workers made 50 steps each, and died in the next.
    lost = 2 * 50 - steps_in(replay)
    assert 0 < lost < 2 * 15
    result = workers._report(0.0)
    assert (result.steps, result.lost_with_worker, result.lost) == (100 - lost, lost, 0)


def test_stored_steps_that_are_not_in_replay_count_as_lost() -> None:
    workers = Workers(light_job(), light_replay(3000, lanes=3), light_weights(), WorkerOptions(count=2))
    with workers:
        rows = workers._control.rows  # no worker runs, so nothing else writes them
        workers._made[:] = 10, 20, 30
        rows[:, control.STORED] = 10, 52
        assert workers._report(0.0).lost == 2
        rows[:, control.STEPS] = 14, 55
        workers._count_lost_with(1)
        rows[1] = 50  # as for a new worker
        result = workers._report(0.0)
        assert (result.lost, result.lost_with_worker) == (0, 3)
        rows[0, control.STORED] = 11
        assert workers._report(0.0).lost == 1


def test_in_process_counts_lost_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    publish = LaneWriter._publish

    def drop(self: LaneWriter, end: int) -> None:
        monkeypatch.setattr(LaneWriter, "_publish", publish)
        self.unpublished = 0

    with InProcess(light_job(longest=1), light_replay(200, lanes=1), light_weights()) as collector:
        assert collector.collect(5).lost == 0
        monkeypatch.setattr(LaneWriter, "_publish", drop)
        result = collector.collect(5)
        assert (result.steps, result.lost) == (4, 1), "an episode of one step, published at its end"


def test_a_killed_worker_is_replaced_and_reported() -> None:
    replay = light_replay(3000)
    with Workers(light_job(), replay, light_weights(), WorkerOptions(count=2, ahead=0)) as workers:
        workers.collect(100)
        victim = workers.processes[1]
        os.kill(victim, signal.SIGKILL)
        restarts = list(workers.collect(100).restarts)
        for _ in until_timeout():
            if restarts:
                break
            restarts += workers.collect(100).restarts
        (restart,) = restarts
        assert (restart.worker, restart.reason) == (1, "it was killed by SIGKILL")
        assert victim not in workers.processes
        before = int(replay.ring.heads[1])
        for _ in until_timeout():
            workers.collect(100)
            if replay.ring.heads[1] > before:
                break
        assert replay.ring.heads[1] > before
        os.kill(workers.processes[0], signal.SIGTERM)  # workers leave signals to the learner
        assert not workers.collect(100).restarts


def test_a_hung_worker_is_replaced(tmp_path: Path) -> None:
    job = light_job(trouble="hang", at=60, once=str(tmp_path / "once"))
    options = WorkerOptions(count=1, ahead=0, hang_s=2)
    with Workers(job, light_replay(3000, lanes=1), light_weights(), options) as workers:
        results = collect_all(workers, [100, 100])
        assert {each.reason for one in results for each in one.restarts} == {"it did not move for 2 s"}


def test_a_worker_is_hung_only_if_it_stays_silent_after_it_was_suspected() -> None:
    second = 1_000_000_000
    detector = HangDetector(started_ns=0)
    assert not detector.is_hung(heartbeat_ns=0, timeout_ns=10 * second, now=9 * second)
    assert not detector.is_hung(0, 10 * second, 10 * second)  # suspected
    assert not detector.is_hung(0, 10 * second, 10 * second + second // 2)
    assert detector.is_hung(0, 10 * second, 11 * second)
    # The machine was suspended for a minute; afterwards the worker moves again.
    assert not detector.is_hung(11 * second, 10 * second, 71 * second)
    assert not detector.is_hung(71 * second + 1, 10 * second, 72 * second)
    # A heartbeat in between restarts the suspicion.
    assert not detector.is_hung(72 * second, 10 * second, 83 * second)
    assert not detector.is_hung(73 * second, 10 * second, 84 * second)
    assert detector.is_hung(73 * second, 10 * second, 85 * second)
    # A new worker is not judged by the heartbeat of its predecessor.
    assert not HangDetector(100 * second).is_hung(0, 10 * second, 105 * second)


def test_the_error_of_a_worker_is_reported(tmp_path: Path) -> None:
    job = light_job(trouble="fail", at=80, once=str(tmp_path / "once"))
    with Workers(job, light_replay(3000, lanes=1), light_weights(), WorkerOptions(count=1, ahead=0)) as workers:
        results = collect_all(workers, [100, 100])
    (restart,) = [each for one in results for each in one.restarts]
    assert restart.reason.startswith("ValueError: no more after 80 steps (collecting.py:")


def test_a_worker_that_exits_is_replaced_up_to_the_allowed_restarts() -> None:
    job, options = light_job(trouble="exit", at=50), WorkerOptions(count=1, ahead=0, restarts=1)
    replay = light_replay(3000, lanes=1)
    workers = Workers(job, replay, light_weights(), options)
    message = r"worker 0: it ended by itself with exit code 7; 1 workers were replaced already"
    with workers, pytest.raises(CollectError, match=message):
        workers.collect(1000)
    assert steps_in(replay) == 2 * 50  # a regular exit publishes every step
    assert sum(workers.state()["steps"]) == 2 * 50


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        ("break", r"worker 0 ended 3 times before its first step: ZeroDivisionError: nothing works here"),
        ("refuse", r"^this game is not for you: buy another$"),
    ],
)
def test_a_worker_that_cannot_start_raises(trouble: str, message: str) -> None:
    replay = light_replay(3000, lanes=1)
    workers = Workers(light_job(trouble=trouble), replay, light_weights(), WorkerOptions(count=1))
    with workers, pytest.raises(CollectError, match=message):
        workers.collect(10)


def test_dropping_the_collector_ends_its_workers() -> None:
    workers = Workers(light_job(), light_replay(1000), light_weights())
    workers.start()
    pids = workers.processes
    assert all(psutil.pid_exists(each) for each in pids)
    del workers
    gc.collect()
    assert not any(psutil.pid_exists(each) for each in pids)


def test_workers_started_by_a_thread_outlive_it() -> None:
    with Workers(light_job(), light_replay(3000), light_weights(), WorkerOptions(ahead=0)) as workers:
        thread = threading.Thread(target=workers.start)
        thread.start()
        thread.join()
        assert not workers.collect(300).restarts


def test_invalid_arguments_are_rejected() -> None:
    shared = light_replay(1000)
    with pytest.raises(CollectError, match="3 workers cannot share 2 lanes"):
        Workers(light_job(), shared, light_weights(), WorkerOptions(count=3))
    with pytest.raises(ReplayError, match='make the replay with storage="shared"'):
        Workers(light_job(), light_replay(1000, storage="memory"), light_weights())
    for wrong in ({"count": 0}, {"ahead": -1}, {"restarts": -1}, {"hang_s": 0.0}, {"start_s": float("nan")}):
        with pytest.raises(CollectError, match=next(iter(wrong))):
            WorkerOptions(**wrong)  # type: ignore[arg-type]
    with pytest.raises(CollectError, match=r"gives uint8 \[8, 8\] where the replay keeps uint8 \[16, 16\]"):
        InProcess(light_job(side=8), shared, light_weights())
    for factory in ("nowhere", "nowhere:Env", "tests.collecting:Nothing"):
        with pytest.raises(CollectError, match="module:name"):
            Recipe(factory).build()
    with pytest.raises(CollectError, match="frames_per_step"):
        Job(Recipe("a:b"), Recipe("a:b"), frames_per_step=0)
    assert issubclass(CollectError, HotloopError)


def test_a_closed_collector_raises() -> None:
    for make in (InProcess, Workers):
        collector = make(light_job(), light_replay(1000), light_weights())
        with pytest.raises(CollectError, match="steps is 0"):
            collector.collect(0)
        collector.close()
        collector.close()
        with pytest.raises(CollectError, match="close"):
            collector.collect(1)
        with pytest.raises(CollectError, match="close"):
            collector.publish(light_weights())


def test_figures_are_plain_python_values() -> None:
    info = {"x": np.float32(2), "n": np.int64(3), "flag": np.True_, "word": "hi", "none": None, "many": np.zeros(3)}
    assert plain_figures(info) == {"x": 2.0, "n": 3, "flag": True, "word": "hi"}
    assert plain_figures(info, ("n", "many", "missing")) == {"n": 3}


def test_an_outbox_never_blocks_when_the_learner_does_not_read() -> None:
    near, far = socket.socketpair()
    with near, far:
        outbox, sent = Outbox(near), 0
        poll = select.poll()
        poll.register(near.fileno(), select.POLLOUT)
        for _ in range(3000):  # a blocking send would never return
            outbox.put([Episode(0, 1.0, sent, {"word": "x" * 400})])
            sent += 1
        assert not poll.poll(0)
        received = b""
        far.setblocking(False)
        while outbox.has_unsent:
            received += far.recv(1 << 20)
            outbox.put([])
        received += far.recv(1 << 24)
        episodes = [each for line in received.splitlines() for each in json.loads(line)["episodes"]]
        assert [each["length"] for each in episodes] == list(range(sent))


def test_an_incomplete_message_is_not_waited_for() -> None:
    near, far = socket.socketpair()
    with near, far:
        worker = WorkerHandle.__new__(WorkerHandle)
        near.setblocking(False)
        worker.connection, worker._received = near, b""
        worker.ready, worker.failure, worker.usage_error = False, None, False
        assert worker.receive() == [] and not worker.ready
        far.sendall(b'{"ready": true}\n{"episodes": [{"lane"')
        assert worker.receive() == [] and worker.ready
        rest = b', "returned": 0.5, "length": 2, "figures": {}}]}\n'
        far.sendall(b": 1" + rest + b'{"episodes": [{"lane": 2' + rest + b'{"fai')
        assert worker.receive() == [Episode(1, 0.5, 2, {}), Episode(2, 0.5, 2, {})]
        far.sendall(b'lure": "no"}\n{')
        far.close()
        assert worker.receive() == [] and worker.failure == "no" and not worker.usage_error
        assert worker.receive() == []
