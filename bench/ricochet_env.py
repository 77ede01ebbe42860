"""Ricochet Robots, 256 boards, random actions, through `VectorEnv.step`: ours and the study's way; and the solver.

One step is all 256 boards, infos, resets and new boards included: 256 µs for it are a million steps of a board a
second. The actions are made beforehand. A step of pictures is also shown beside a plain copy of as many bytes, which
is what memory allows; the solver beside a breadth-first search that has the same slides and the same bound.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from measure import Row, Times, against_limit, estimate, interleave, main, ratio_of, say
from ricochet_study import StudyBoard

from hotloop.clock import now_ns
from hotloop.training.envs.numba_tools import kernel
from hotloop.training.envs.ricochet import LEVELS, RicochetVectorEnv
from hotloop.training.envs.ricochet.board_kernels import find_stops, pack_robots, slide
from hotloop.training.envs.ricochet.kernels import borrow_search, borrow_state
from hotloop.training.envs.ricochet.memory_layout import GOAL, TARGET, Search, State
from hotloop.training.envs.ricochet.solver import canonical, find_bounds, new_search, solve_board

BOARDS, SETTLE = 256, 60
LIMIT_US = {"planes": BOARDS / 1.0, "rgb": BOARDS / 0.1}
OUR_STEPS = {"planes": 10, "rgb": 100}
"""Steps of ours in a block, so that it lasts about as long as one of the study's."""
PEER = "the study's way"
BANK_LIMIT_US = 10 * 60e6 / 50_000
"""A bank of 50,000 boards in ten minutes."""

SOLVED_AT_ONCE = {0: 64, 1: 64, 2: 16, 3: 64}


def run(quick: bool) -> list[Row]:
    """Measure everything this bench shows."""
    rounds = 3 if quick else 20
    rows = []
    for observation, threads in (("planes", 1), ("rgb", 1), ("rgb", 2)):
        say(f"ricochet: {observation}, {threads} threads")
        rows += compare(observation, threads, rounds)
    say("ricochet: solver")
    for level in range(len(LEVELS)):
        rows += solver(level, rounds)
    return rows


def compare(observation: str, threads: int, rounds: int) -> list[Row]:
    """Ours against the limit, the study, and for pictures a copy of memory."""
    steps = OUR_STEPS[observation]
    variants = {"ours": ours(observation, threads, steps), PEER: study(observation == "rgb")}
    if observation == "rgb" and threads == 1:
        variants["copy"] = copy(steps)
    times = interleave(variants, rounds, calls=1)
    own = times["ours"] / steps
    name = f"a step of {BOARDS} boards, {observation}" + (f", {threads} threads" if threads > 1 else "")
    shown = estimate(lambda each: float(np.median(each)) / 1e3, own)
    rows = [against_limit(name, shown, LIMIT_US[observation], "µs"), beside(name, own, times[PEER], PEER)]
    if "copy" in times:
        rows.append(beside(name, own, times["copy"] / steps, "a copy of as many bytes"))
    return rows


def beside(name: str, own: Times, peer: Times, peer_name: str) -> Row:
    """Make the row that compares ours with a peer's."""
    ratio = estimate(ratio_of, peer, own)
    return Row(
        name, float(np.median(own)) / 1e3, float(np.median(peer)) / 1e3, peer_name, "µs",
        ratio.value, ratio.low, ratio.high,
    )  # fmt: skip


def ours(observation: str, threads: int, steps: int) -> Callable[[], object]:
    """Many steps of ours."""
    env = RicochetVectorEnv(BOARDS, observation=observation, threads=threads)
    actions = np.random.default_rng(1).integers(0, 16, (max(SETTLE, steps), BOARDS))
    env.reset(seed=1)
    for each in actions[:SETTLE]:
        env.step(each)

    def play() -> None:
        for each in actions[:steps]:
            env.step(each)

    return play


def study(pictures: bool) -> Callable[[], object]:
    """One step the study's way."""
    env = RicochetVectorEnv(BOARDS)
    env.reset(seed=1)
    puzzles = env.puzzles()
    boards = [StudyBoard(puzzles, i) for i in range(BOARDS)]
    actions = np.random.default_rng(1).integers(0, 16, (SETTLE, BOARDS)).tolist()
    turn = 0

    def play() -> None:
        nonlocal turn
        turn += 1
        np.stack(
            [board.step(action, pictures)[0] for board, action in zip(boards, actions[turn % SETTLE], strict=True)]
        )

    return play


def copy(steps: int) -> Callable[[], object]:
    """Copies of as many bytes as there are in the pictures of all boards."""
    source = np.ones((BOARDS, 128, 128, 3), np.uint8)
    # As in our own steps, the pages of what is written to are there.
    targets = [np.ones_like(source) for _ in range(2)]

    def work() -> None:
        for k in range(steps):
            np.copyto(targets[k % 2], source)

    return work


def solver(level: int, rounds: int) -> list[Row]:
    """Solve boards of a level, and make them: boards are made and solved until one is of the level."""
    amount = SOLVED_AT_ONCE[level]
    env = RicochetVectorEnv(amount, level=level)
    env.reset(seed=level)
    # The first reset may compile; those that follow do not.
    spent = []
    for _ in range(max(3, rounds // 4)):
        begin = now_ns()
        env.reset()
        spent.append((now_ns() - begin) / amount)
    made = estimate(lambda each: float(np.mean(each)) / 1e3, np.array(spent))
    rows = [against_limit(f"a new board of level {level}, made and solved", made, BANK_LIMIT_US, "µs")]
    state, memory = env.puzzles().state(), new_search()
    for i in range(amount):
        find_stops(16, state.walls, state.stops, i)
    table, queue = np.zeros(1 << 22, np.int64), np.zeros(1 << 21, np.int64)
    longest = LEVELS[level].longest
    variants = {
        "ours": lambda: deepen(state, longest, memory),
        "peer": lambda: widen(state, longest, memory, (table, queue)),
    }
    times = interleave(variants, rounds, calls=1)
    name = f"solving a board of level {level}"
    return [*rows, beside(name, times["ours"] / amount, times["peer"] / amount, "breadth-first")]


@kernel
def deepen(games: State, most: int, memory: Search) -> int:
    """Solve all boards as we do."""
    state, search, total = borrow_state(games), borrow_search(memory), 0
    for i in range(len(state.vitals)):
        total += solve_board(state, i, 4, most, search)
    return total


@kernel
def widen(games: State, most: int, memory: Search, space: tuple[np.ndarray, np.ndarray]) -> int:
    """Find the length of all boards' solutions breadth-first."""
    state, search, total = borrow_state(games), borrow_search(memory), 0
    for i in range(len(state.vitals)):
        total += breadth_first(state, i, most, search, space)
    return total


@kernel
def breadth_first(state: State, i: int, most: int, search: Search, space: tuple[np.ndarray, np.ndarray]) -> int:
    """Return the length of a board's shortest solution; positions from which it is too far are left out here too."""
    table, queue = space
    goal, target, mask = state.vitals[i, GOAL], state.vitals[i, TARGET], len(space[0]) - 1
    find_bounds(state.walls, i, goal, most, search)
    search.number[0] += 1
    # The search's number marks what it has seen, so that the table need not be cleared.
    mine = search.number[0] << 32
    queue[0] = pack_robots(state.robots, i, 4)
    first, known = 0, 1
    for depth in range(1, most + 1):
        last = known
        while first < last:
            positions = queue[first]
            first += 1
            for action in range(16):
                robot = action >> 2
                cell, stop = (positions >> (8 * robot)) & 255, slide(state.stops, i, positions, 4, robot, action & 3)
                if stop == cell:
                    continue
                if robot == target and stop == goal:
                    return depth
                after = positions ^ ((cell ^ stop) << (8 * robot))
                if np.int64(search.bound[(after >> (8 * target)) & 255]) > most - depth:
                    continue
                key = np.int64(canonical(after, target, 4)) | mine
                at = ((key * 0x9E3779B1) >> 7) & mask
                while table[at] >> 32 == mine >> 32 and table[at] != key:
                    at = (at + 1) & mask
                if table[at] != key and known < len(queue):
                    table[at], queue[known] = key, after
                    known += 1
    return -1


if __name__ == "__main__":
    main(run, __doc__)
