"""Saved state that cannot be is refused before a kernel addresses memory by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.collecting import light_job, light_replay, light_weights

from hotloop.errors import HotloopError
from hotloop.training.collect import InProcess, WorkerOptions, Workers
from hotloop.training.envs.ricochet import RicochetVectorEnv
from hotloop.training.envs.ricochet import memory_layout as ricochet
from hotloop.training.envs.snake import SnakeVectorEnv
from hotloop.training.envs.snake import memory_layout as snake
from hotloop.training.learn import DQN, DQNConfig, QRule, QShape
from hotloop.training.pipelines.dqn_snake import move_target, q_loss
from hotloop.training.replay import FrameReplay, Prioritised, VectorReplay
from hotloop.training.run.collector_stats import CollectorStats
from hotloop.training.run.counts import Episodes
from hotloop.training.state_checks import count_in, numbers_in, random_state
from hotloop.training.tasks.curriculum import Solved

State = dict[str, np.ndarray]
Change = Callable[[State], object]
NAN, INF = float("nan"), float("inf")


def put(name: str, where: Any, value: Any) -> Change:
    def change(state: State) -> None:
        state[name][where] = value

    return change


def cell(x: int, y: int) -> int:
    return 64 * y + x


SNAKES = {
    "head before the ring": put("vitals", (1, snake.HEAD), -1),
    "head behind the ring": put("vitals", (1, snake.HEAD), 36),
    "length 0": put("vitals", (1, snake.LENGTH), 0),
    "length of more than the board": put("vitals", (1, snake.LENGTH), 37),
    "longer than its rows": put("vitals", (1, snake.LENGTH), 5),
    "heading 4": put("vitals", (1, snake.HEADING), 4),
    "food far away": put("vitals", (1, snake.FOOD), 1 << 40),
    "food beside the board": put("vitals", (1, snake.FOOD), cell(6, 0)),
    "food below the board": put("vitals", (1, snake.FOOD), cell(0, 6)),
    "no food": put("vitals", (1, snake.FOOD), -1),
    "food on the snake": put("vitals", (1, snake.FOOD), cell(3, 3)),
    "negative steps": put("vitals", (1, snake.STEPS), -1),
    "over twice": put("vitals", (1, snake.OVER), 2),
    "body beside the board": put("body", (1, 2), cell(9, 3)),
    "body above the board": put("body", (1, 2), -64),
    "body crosses itself": put("body", (1, 1), cell(3, 3)),
    "rows of nothing": put("rows", 1, 0),
    "rows of everything": put("rows", 1, ~np.uint64(0)),
}


@pytest.mark.parametrize("change", SNAKES)
@pytest.mark.parametrize("features", ["enhanced", "grid"])
def test_impossible_snakes_are_refused(change: str, features: str) -> None:
    env = SnakeVectorEnv(3, board=6, features=features)
    env.reset(seed=0)
    state = env.get_state()
    SNAKES[change](state)
    before = env.get_state()
    with pytest.raises(HotloopError, match="the saved state"):
        env.set_state(state)
    assert all((env.get_state()[name] == before[name]).all() for name in before)


@pytest.mark.parametrize("board", [5, 6, 64])
def test_every_game_that_is_played_is_possible(board: int) -> None:
    env, rng = SnakeVectorEnv(16, board=board, tail_free=True), np.random.default_rng(0)
    env.reset(seed=0)
    for _ in range(300):
        env.step(rng.integers(3, size=16))
        env.set_state(env.get_state())


BOARDS = {
    "goal of 256": put("vitals", (1, ricochet.GOAL), 256 + 3),
    "goal of -1": put("vitals", (1, ricochet.GOAL), -1),
    "target of 256": put("vitals", (1, ricochet.TARGET), 256),
    "negative target": put("vitals", (1, ricochet.TARGET), -256),
    "negative steps": put("vitals", (1, ricochet.STEPS), -1),
    "absurd solution": put("vitals", (1, ricochet.OPTIMAL), 1 << 40),
    "robot beside the board": put("robots", (1, 0), 15),
    "no walls": put("walls", 1, 0),
}


@pytest.mark.parametrize("change", BOARDS)
def test_impossible_boards_are_refused(change: str) -> None:
    env = RicochetVectorEnv(3, size=8)
    env.reset(seed=0)
    state = env.get_state()
    BOARDS[change](state)
    with pytest.raises(HotloopError, match=r"the saved state|is impossible"):
        env.set_state(state)


def filled(prioritised: bool, frames: bool) -> FrameReplay | VectorReplay:
    how = Prioritised() if prioritised else None
    replay: FrameReplay | VectorReplay
    if frames:
        replay = FrameReplay(40, 2, (4, 4), stack=2, n_step=2, prioritised=how)
    else:
        replay = VectorReplay(40, 2, (3,), n_step=2, prioritised=how)
    rng, never = np.random.default_rng(0), np.zeros(2, np.bool_)
    for step in range(30):
        seen = np.zeros((2, 4, 4), np.uint8) if frames else rng.random((2, 3), np.float32)
        replay.add(seen, rng.integers(3, size=2), rng.random(2, np.float32), never | (step % 7 == 6), never, seen)
    if prioritised:
        replay.update_priorities(replay.sample(8, rng).index, rng.random(8, np.float32))
    return replay


REPLAYS = {
    "negative head": put("heads", 0, -5),
    "head beyond 64 bits of ids": put("heads", 0, 1 << 62),
    "unknown flags": put("words", (0, 3, 0), 16),
    "reward NaN": put("words", (0, 3, 1), np.float32(NAN).view(np.uint32)),
    "action 3": put("words", (0, 3, 2), 3),
    "negative action": put("words", (0, 3, 3), 0xFFFF_FFFF),
}
PRIORITIES = {
    "NaN": put("sampler.priorities", 5, NAN),
    "infinite": put("sampler.priorities", 5, INF),
    "a sum that is infinite": put("sampler.priorities", 5, 1e308),
    "negative": put("sampler.priorities", 5, -1.0),
    "of a step that is not complete": put("sampler.priorities", slice(None), 1.0),
    "newest 0": put("sampler.newest", 0, 0.0),
    "newest NaN": put("sampler.newest", 0, NAN),
    "window turned round": put("sampler.seen", 0, (30, 3)),
    "window before the ring": put("sampler.seen", (0, 0), -1),
    "window longer than the ring": put("sampler.seen", 0, (0, 28)),
    "window ahead of the lane": put("sampler.seen", (0, 1), 1 << 40),
}


@pytest.mark.parametrize("frames", [False, True])
@pytest.mark.parametrize("change", [*REPLAYS, *PRIORITIES])
def test_impossible_replays_are_refused_and_change_nothing(change: str, frames: bool) -> None:
    replay = filled(prioritised=True, frames=frames)
    before, state = replay.state(), replay.state()
    (REPLAYS | PRIORITIES)[change](state)
    with pytest.raises(HotloopError):
        replay.restore(state, actions=3)
    assert all((replay.state()[name] == before[name]).all() for name in before)


@pytest.mark.parametrize("prioritised", [False, True])
@pytest.mark.parametrize("frames", [False, True])
def test_a_replay_takes_its_own_state_at_any_time(prioritised: bool, frames: bool) -> None:
    replay = filled(prioritised, frames)
    other = filled(prioritised, frames)
    other.restore(replay.state(), actions=3)
    ours, theirs = (each.sample(16, np.random.default_rng(1)) for each in (replay, other))
    assert (ours.index == theirs.index).all() and (ours.weight == theirs.weight).all()


def changed(state: dict[str, Any], **values: Any) -> dict[str, Any]:
    return {name: value for name, value in (state | values).items() if value is not ...}


COLLECTED: dict[str, dict[str, Any]] = {
    "nothing asked for": {"asked": 0},
    "more asked for than will ever come": {"asked": 1 << 50},
    "no life": {"life": ...},
    "negative life": {"life": -1},
    "life as text": {"life": "1"},
    "steps true": {"steps": True},
}


@pytest.mark.parametrize("change", COLLECTED)
def test_an_impossible_collector_is_refused(change: str) -> None:
    with InProcess(light_job(), light_replay(500, storage="memory"), light_weights()) as collector:
        collector.collect(100)
        state = collector.state()
        with pytest.raises(HotloopError, match="the checkpoint has"):
            collector.restore(changed(state, **COLLECTED[change]))
        collector.restore(state)


WORKERS: dict[str, dict[str, Any]] = {
    **{name: each for name, each in COLLECTED.items() if name != "nothing asked for"},
    "too few lanes": {"steps": [1]},
    "negative steps": {"steps": [-1, 1]},
    "told of more than was made": {"told": 1 << 40},
    "heads in the future": {"heads": [1 << 40] * 2},
    "heads as text": {"heads": "1234"},
}


@pytest.mark.parametrize("change", WORKERS)
def test_impossible_workers_are_refused(change: str) -> None:
    replay = light_replay(500)
    with Workers(light_job(), replay, light_weights(), WorkerOptions(count=2)) as workers:
        state = workers.state()
        with pytest.raises(HotloopError, match=r"the checkpoint has|the saved state"):
            workers.restore(changed(state, **WORKERS[change]))
        workers.restore(state)


def test_resuming_after_many_steps_takes_no_memory_for_those_that_are_gone() -> None:
    replay = light_replay(100, storage="memory")
    state = replay.state() | {"heads": np.full(len(replay.ring.heads), 1 << 40)}
    state["words"] = replay.ring.by_lane()["words"].copy()
    state["frames"] = replay.ring.by_lane()["frames"].copy()
    replay.restore(state)
    with InProcess(light_job(), replay, light_weights()) as collector:
        assert collector.collect(8).steps >= 8


def test_counts_of_episodes_are_checked() -> None:
    episodes, solved = Episodes(3), Solved(3, 5)
    for name, value in (("length", -1), ("ended", -1), ("recent", NAN), ("return", INF)):
        state = episodes.state()
        state[name][...] = value
        with pytest.raises(HotloopError, match=name):
            episodes.restore(state)
    for name, array in solved.state().items():
        with pytest.raises(HotloopError, match=name):
            solved.restore(solved.state() | {name: array - 1})
    with pytest.raises(HotloopError, match="nothing for 'return'"):
        episodes.restore({})


@pytest.mark.parametrize(
    "change",
    [{"recent": None}, {"recent": [[1]]}, {"recent": [["a", "b"]]}, {"recent": [[0, 0]] * 200}, {"lost": -1},
     {"epochs": ...}, {"in_epoch": 1.5}],
)  # fmt: skip
def test_figures_of_collectors_are_checked(change: dict[str, Any]) -> None:
    feeding = CollectorStats(4)
    with pytest.raises(HotloopError):
        feeding.restore(changed(feeding.state(), **change), 1, 0)
    feeding.restore(feeding.state(), 1, 0)


def test_a_learner_takes_no_other_types_and_no_numbers_that_are_not_finite() -> None:
    learner = DQN(DQNConfig(QShape((4,), 3, (8,))), QRule(q_loss, move_target, numba=True))
    arrays = learner.tensors()
    weights = next(name for name in arrays if name.startswith("online.weights"))
    for change in (
        {weights: arrays[weights].astype(np.float64)},
        {weights: np.full_like(arrays[weights], NAN)},
        {"updates": np.array(-1)},
        {"updates": np.array(1 << 60)},
        {"noise_generator": np.zeros(6, np.uint64)},
        {"noise_generator": np.full(6, 7, np.uint64)},
    ):
        with pytest.raises(HotloopError):
            learner.load(arrays | change)
    learner.load(arrays)


def test_a_network_that_does_not_fit_is_refused_before_it_is_made() -> None:
    for hidden in ((1 << 20, 1 << 20), (1 << 40, 1 << 40)):
        with pytest.raises(HotloopError, match="give smaller layers"):
            DQN(DQNConfig(QShape((4,), 3, hidden)), QRule(q_loss, move_target, numba=True))


def test_values_of_json_are_checked() -> None:
    state = np.random.default_rng(0).bit_generator.state
    assert random_state(state) == state
    inner = state["state"]
    for wrong in (
        None, 3, {}, state | {"bit_generator": "MT19937"}, state | {"state": None}, state | {"uinteger": 1 << 32},
        state | {"has_uint32": 2}, state | {"state": inner | {"inc": 2}}, state | {"state": inner | {"state": -1}},
        state | {"state": inner | {"state": 1 << 128}}, state | {"state": inner | {"inc": 3.0}},
    ):  # fmt: skip
        with pytest.raises(HotloopError, match="random generator"):
            random_state(wrong)
    for wrong in (None, True, 1.0, "1", -1, 1 << 60):
        with pytest.raises(HotloopError, match="for 'n'"):
            count_in({"n": wrong}, "n")
    for wrong in (None, 3, [1], [1, 2, 3], [1, "2"], [1, True], [1, -1]):
        with pytest.raises(HotloopError, match="for 'n'"):
            numbers_in({"n": wrong}, "n", 2, low=0)
