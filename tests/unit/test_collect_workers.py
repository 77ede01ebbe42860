"""Collectors in this process and in others: the same experience, counted right; what cannot be is refused."""

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
from hotloop.training.collect import control_block as on
from hotloop.training.collect.player import plain_figures
from hotloop.training.collect.worker_handle import Hired, Pulse
from hotloop.training.collect.worker_main import Outbox
from hotloop.training.replay import FrameReplay, ReplayError
from hotloop.training.replay.writers import LaneWriter

PATIENCE_S = 90.0


@pytest.fixture(autouse=True)
def findable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers look for modules where this process does."""
    monkeypatch.syspath_prepend(str(ROOT))


def patiently(pause_s: float = 0.02) -> Iterator[None]:
    until = now_ns() + round(PATIENCE_S * 1e9)
    while now_ns() < until:
        yield
        time.sleep(pause_s)


def steps_in(replay: FrameReplay) -> int:
    """Count the steps that are in a replay which has not gone round, from its records alone."""
    heads, flags = replay.ring.heads, replay.ring.records["flags"]
    return sum(int(((flags[lane, : heads[lane]] & 8) == 0).sum()) for lane in range(len(heads)))


def gather(collector: Any, chunks: list[int]) -> list[Collected]:
    return [collector.collect(each) for each in chunks]


def test_two_workers_fill_a_replay_with_whole_steps() -> None:
    replay, rng = light_replay(40_000), np.random.default_rng(0)
    with Workers(light_job(), replay, light_weights(), WorkerOptions(count=2, ahead=100)) as workers:
        told, came, asked = [], set(), 3000
        for _ in patiently():  # until both have begun
            told.append(workers.collect(20))
            asked += 20
            if min(replay.ring.heads) > 50:
                break
        for k in range(30):
            told.append(workers.collect(100))
            batch = replay.sample(32, rng)
            workers.sampled(batch.index)
            came |= check_batch(batch)
            assert workers.publish(light_weights(k + 2.0)) == k + 2
        pids = workers.processes
        assert all(psutil.pid_exists(each) for each in pids)
    assert not any(psutil.pid_exists(each) for each in pids)
    made = sum(each.steps for each in told)
    assert asked <= made <= asked + 100 + 2 * 16
    assert all(each.frames == each.steps for each in told)
    assert made <= steps_in(replay) <= made + 2 * 16 + 100  # what came after the last look
    assert min(replay.ring.heads) > 50
    episodes = [each for one in told for each in one.episodes]
    assert {each.lane for each in episodes} == {0, 1}
    for each in episodes:
        assert each.figures["distance"] == each.length
        assert each.returned == each.length * (each.length - 1) / 2
        assert each.figures["flag"] is bool(each.length % 2)
        assert set(each.figures) == {"episode", "flag", "distance"}
    assert sum(each.length for each in episodes) <= made
    assert len({each[0] for each in came}) > 20
    assert not any(each.restarts for each in told)
    assert all(each.overwritten == 0 for each in told)
    spent = [getattr(told[-1].spent, each.name) for each in fields(told[-1].spent)]
    assert min(spent) >= 0 and sum(one.spent.env_s for one in told) > 0


def test_workers_stop_ahead_of_the_learner() -> None:
    replay = light_replay(2000)
    with Workers(light_job(), replay, light_weights(), WorkerOptions(count=2, ahead=200)) as workers:
        workers.collect(50)
        for _ in patiently():
            if steps_in(replay) >= 250:
                break
        time.sleep(0.3)
        assert 250 <= steps_in(replay) <= 250 + 2 * 16
        told = workers.collect(1)
        assert told.steps > 0
        waited_s = told.spent.ratio_s
        for _ in patiently():  # a wait is reported when it is over, by whichever worker gets the processor
            if waited_s > 0.2:
                break
            waited_s += workers.collect(200).spent.ratio_s
        assert waited_s > 0.2


def test_new_weights_reach_all_workers() -> None:
    with Workers(light_job(), light_replay(2000), light_weights(), WorkerOptions(count=2, ahead=0)) as workers:
        versions = set()
        for k in range(5):
            newest = workers.publish(light_weights(k + 2.0))
            for _ in patiently():
                told = workers.collect(100)
                versions |= {each.version for each in told.episodes}
                if newest in versions and told.lag == 0:
                    break
            assert newest in versions and told.lag == 0
        assert versions >= set(range(2, 7))


def run_lockstep(seed: int, workers: int, **options: Any) -> tuple[dict[str, np.ndarray], list[Collected]]:
    replay = light_replay(500, lanes=2)
    chosen = WorkerOptions(count=workers, lockstep=True)
    with Workers(light_job(seed, **options), replay, light_weights(), chosen) as collector:
        told = gather(collector, [64, 3, 100, 256])
        collector.publish(light_weights(2.0))
        told += gather(collector, [300, 500])
        for one in told:
            assert not one.restarts
    return replay.state(), told


def same_told(a: list[Collected], b: list[Collected]) -> None:
    for one, other in zip(a, b, strict=True):
        key = lambda each: each.lane  # noqa: E731
        assert sorted(one.episodes, key=key) == sorted(other.episodes, key=key)
        assert (one.steps, one.frames, one.overwritten) == (other.steps, other.frames, other.overwritten)


def same_state(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return all(np.array_equal(a[name], b[name]) for name in ("heads", "words", "frames"))


def test_lockstep_repeats_itself_whatever_the_timing() -> None:
    state, told = run_lockstep(5, 2)
    again, told_again = run_lockstep(5, 2, pause_s=0.002)
    assert same_state(state, again)
    same_told(told, told_again)
    assert [one.steps for one in told] == [64, 4, 100, 256, 300, 500]
    assert told[-1].overwritten > 0
    other, _ = run_lockstep(6, 2)
    assert not same_state(state, other)


def test_lockstep_is_what_one_process_does() -> None:
    state, told = run_lockstep(5, 1)
    replay = light_replay(500, lanes=2)
    with InProcess(light_job(5), replay, light_weights()) as collector:
        here = gather(collector, [64, 3, 100, 256])
        assert collector.publish(light_weights(2.0)) == 2
        here += gather(collector, [300, 500])
    assert same_state(state, replay.state())
    same_told(told, here)


def test_a_policy_is_told_how_far_all_are(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests import collecting

    seen = []
    monkeypatch.setattr(collecting.LightPolicy, "act", told_steps(seen, collecting.LightPolicy.act))
    with InProcess(light_job(), light_replay(200, lanes=3), light_weights()) as collector:
        collector.collect(7)
        state = json.loads(json.dumps(collector.state()))
        collector.restore(state)
        collector.collect(1)
        assert collector.collect(5).steps == 6
    assert seen == [0, 3, 6, 9, 12]


def told_steps(seen: list[int], act: Any) -> Any:
    def told(self: Any, stacks: np.ndarray, steps: int, rng: np.random.Generator) -> np.ndarray:
        seen.append(steps)
        return act(self, stacks, steps, rng)

    return told


@pytest.mark.parametrize("lockstep", [False, True])
def test_a_resumed_run_goes_on_with_new_episodes(lockstep: bool) -> None:
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
        told = workers.collect(300)
        with pytest.raises(CollectError, match="before collect and start"):
            workers.restore(state)
        after = sum(workers.state()["steps"])
        assert workers.state()["life"] == 1
    assert after - state["told"] >= told.steps >= 500 - before
    assert not lockstep or after - before == told.steps == 300
    check_batch(again.sample(300, np.random.default_rng(0)))
    # Other seeds than before: no episode comes twice.
    # Of both workers: on a busy machine one may have collected all there is.
    ring, names = again.ring, []
    for lane, head in enumerate(ring.heads):
        begins = np.flatnonzero(ring.records["flags"][lane, :head] & 4) + lane * ring.shape.length
        names += [ring.block.arrays["frames"][each, :4].tobytes() for each in begins]
    assert len(names) == len(set(names)) > 10


def test_steps_that_came_while_a_checkpoint_was_made_are_counted_when_it_is_resumed() -> None:
    replay, options = light_replay(3000), WorkerOptions(count=2, ahead=200)
    with Workers(light_job(), replay, light_weights(), options) as workers:
        told = workers.collect(50).steps
        state = json.loads(json.dumps(workers.state()))
        # Allows 50 more, so that steps arrive after the state even if workers were as far ahead as they may be.
        workers.collect(50)
        for _ in patiently():
            if steps_in(replay) >= 300:
                break
    made = steps_in(replay)
    assert state["told"] == told < made
    again = light_replay(3000)
    again.restore(replay.state())
    with Workers(light_job(), again, light_weights(), options) as workers:
        workers.restore(state)
        assert sum(workers.state()["steps"]) == made
        assert workers._tell(0.0).steps == made - told


def test_workers_are_ready_before_anything_is_asked_of_them() -> None:
    replay = light_replay(3000)
    with Workers(light_job(), replay, light_weights(), WorkerOptions(count=2, ahead=0)) as workers:
        workers.get_ready()
        pids = workers.processes
        assert [each.ready for each in workers._hired] == [True, True]
        time.sleep(0.3)
        assert replay.ring.heads.tolist() == [0, 0], "nobody plays before it is asked to"
        told = workers.collect(100)
        assert workers.processes == pids and not told.restarts
    refused = Workers(light_job(trouble="refuse"), light_replay(3000), light_weights(), WorkerOptions(count=2))
    with refused, pytest.raises(CollectError, match="not for you"):
        refused.get_ready()


def test_what_goes_with_a_worker_that_ends_is_counted() -> None:
    job, replay = light_job(trouble="die", at=50), light_replay(3000, lanes=1)
    workers = Workers(job, replay, light_weights(), WorkerOptions(count=1, ahead=0, restarts=1))
    with workers, pytest.raises(CollectError, match="SIGKILL"):
        workers.collect(1000)
    # Two workers made 50 steps each, and died in the next.
    gone = 2 * 50 - steps_in(replay)
    assert 0 < gone < 2 * 15
    told = workers._tell(0.0)
    assert (told.steps, told.gone, told.lost) == (100 - gone, gone, 0)


def test_what_was_stored_and_never_came_is_lost() -> None:
    workers = Workers(light_job(), light_replay(3000, lanes=3), light_weights(), WorkerOptions(count=2))
    with workers:
        rows = workers._board.rows  # of workers that are not started: nobody writes there
        workers._made[:] = 10, 20, 30
        rows[:, on.STORED] = 10, 52
        assert workers._tell(0.0).lost == 2
        rows[:, on.STEPS] = 14, 55
        workers._settle(1)
        rows[1] = 50  # what a new one would begin with
        told = workers._tell(0.0)
        assert (told.lost, told.gone) == (0, 3)
        rows[0, on.STORED] = 11
        assert workers._tell(0.0).lost == 1


def test_what_is_lost_in_one_process_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    publish = LaneWriter._publish

    def forget(self: LaneWriter, end: int) -> None:
        monkeypatch.setattr(LaneWriter, "_publish", publish)
        self._unpublished = 0

    with InProcess(light_job(longest=1), light_replay(200, lanes=1), light_weights()) as collector:
        assert collector.collect(5).lost == 0
        monkeypatch.setattr(LaneWriter, "_publish", forget)
        told = collector.collect(5)
        assert (told.steps, told.lost) == (4, 1), "an episode of one step, published at its end"


def test_a_killed_worker_is_replaced_and_said_so() -> None:
    replay = light_replay(3000)
    with Workers(light_job(), replay, light_weights(), WorkerOptions(count=2, ahead=0)) as workers:
        workers.collect(100)
        victim = workers.processes[1]
        os.kill(victim, signal.SIGKILL)
        restarts = list(workers.collect(100).restarts)
        for _ in patiently():
            if restarts:
                break
            restarts += workers.collect(100).restarts
        (restart,) = restarts
        assert (restart.worker, restart.reason) == (1, "it was killed by SIGKILL")
        assert victim not in workers.processes
        before = int(replay.ring.heads[1])
        for _ in patiently():
            workers.collect(100)
            if replay.ring.heads[1] > before:
                break
        assert replay.ring.heads[1] > before
        os.kill(workers.processes[0], signal.SIGTERM)  # for the one who started them to decide
        assert not workers.collect(100).restarts


def test_a_worker_that_hangs_is_replaced(tmp_path: Path) -> None:
    job = light_job(trouble="hang", at=60, once=str(tmp_path / "once"))
    options = WorkerOptions(count=1, ahead=0, hang_s=2)
    with Workers(job, light_replay(3000, lanes=1), light_weights(), options) as workers:
        told = gather(workers, [100, 100])
        assert {each.reason for one in told for each in one.restarts} == {"it did not move for 2 s"}


def test_a_worker_hangs_only_if_it_does_not_move_after_it_was_suspected_either() -> None:
    second = 1_000_000_000
    pulse = Pulse(started_ns=0)
    assert not pulse.lost(beat_ns=0, most_ns=10 * second, now=9 * second)
    assert not pulse.lost(0, 10 * second, 10 * second)  # suspected
    assert not pulse.lost(0, 10 * second, 10 * second + second // 2)
    assert pulse.lost(0, 10 * second, 11 * second)
    # All were suspended for a minute: it moves as soon as it is let.
    assert not pulse.lost(11 * second, 10 * second, 71 * second)
    assert not pulse.lost(71 * second + 1, 10 * second, 72 * second)
    # Suspected anew from the beginning if it moved once in between.
    assert not pulse.lost(72 * second, 10 * second, 83 * second)
    assert not pulse.lost(73 * second, 10 * second, 84 * second)
    assert pulse.lost(73 * second, 10 * second, 85 * second)
    # One that has just been started is not judged by its predecessor.
    assert not Pulse(100 * second).lost(0, 10 * second, 105 * second)


def test_a_worker_that_fails_says_why(tmp_path: Path) -> None:
    job = light_job(trouble="fail", at=80, once=str(tmp_path / "once"))
    with Workers(job, light_replay(3000, lanes=1), light_weights(), WorkerOptions(count=1, ahead=0)) as workers:
        told = gather(workers, [100, 100])
    (restart,) = [each for one in told for each in one.restarts]
    assert restart.reason.startswith("ValueError: no more after 80 steps (collecting.py:")


def test_a_worker_that_leaves_is_replaced_until_it_is_enough() -> None:
    job, options = light_job(trouble="exit", at=50), WorkerOptions(count=1, ahead=0, restarts=1)
    replay = light_replay(3000, lanes=1)
    workers = Workers(job, replay, light_weights(), options)
    message = r"worker 0: it ended by itself with exit code 7; 1 workers were replaced already"
    with workers, pytest.raises(CollectError, match=message):
        workers.collect(1000)
    assert steps_in(replay) == 2 * 50  # nothing that was made before is lost
    assert sum(workers.state()["steps"]) == 2 * 50


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        ("break", r"worker 0 ended 3 times before its first step: ZeroDivisionError: nothing works here"),
        ("refuse", r"^this game is not for you: buy another$"),
    ],
)
def test_what_cannot_start_is_said(trouble: str, message: str) -> None:
    replay = light_replay(3000, lanes=1)
    workers = Workers(light_job(trouble=trouble), replay, light_weights(), WorkerOptions(count=1))
    with workers, pytest.raises(CollectError, match=message):
        workers.collect(10)


def test_workers_that_were_forgotten_end() -> None:
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


def test_what_cannot_be_is_refused() -> None:
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


def test_a_closed_collector_says_so() -> None:
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


def test_figures_are_plain() -> None:
    info = {"x": np.float32(2), "n": np.int64(3), "flag": np.True_, "word": "hi", "none": None, "many": np.zeros(3)}
    assert plain_figures(info) == {"x": 2.0, "n": 3, "flag": True, "word": "hi"}
    assert plain_figures(info, ("n", "many", "missing")) == {"n": 3}


def test_an_outbox_never_waits_for_one_who_does_not_listen() -> None:
    near, far = socket.socketpair()
    with near, far:
        outbox, sent = Outbox(near), 0
        poll = select.poll()
        poll.register(near.fileno(), select.POLLOUT)
        for _ in range(3000):  # a blocking send would never come back from here
            outbox.put([Episode(0, 1.0, sent, {"word": "x" * 400})])
            sent += 1
        assert not poll.poll(0)
        said = b""
        far.setblocking(False)
        while outbox.waiting:
            said += far.recv(1 << 20)
            outbox.put([])
        said += far.recv(1 << 24)
        came = [each for line in said.splitlines() for each in json.loads(line)["episodes"]]
        assert [each["length"] for each in came] == list(range(sent))


def test_a_message_that_is_not_whole_is_not_waited_for() -> None:
    near, far = socket.socketpair()
    with near, far:
        hired = Hired.__new__(Hired)
        near.setblocking(False)
        hired.line, hired._heard, hired.ready, hired.failed, hired.mistake = near, b"", False, None, False
        assert hired.hear() == [] and not hired.ready
        far.sendall(b'{"ready": true}\n{"episodes": [{"lane"')
        assert hired.hear() == [] and hired.ready
        far.sendall(b': 1}]}\n{"episodes": [{"lane": 2}]}\n{"fai')
        assert hired.hear() == [{"lane": 1}, {"lane": 2}]
        far.sendall(b'led": "no"}\n{')
        far.close()
        assert hired.hear() == [] and hired.failed == "no" and not hired.mistake
        assert hired.hear() == []
