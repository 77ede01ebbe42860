"""One call steps all games: move, reward, end, reset and observation. `twin` says the same in plain Python.

A robot slides to where the walls alone would stop it, which is known for every cell and direction, or before the
nearest robot on that way: no cell is visited. What of an observation belongs to the board is drawn when the board
begins; a step copies it and adds the robots. Pictures are drawn by `raster`.
"""

from __future__ import annotations

import numpy as np

from hotloop.training.envs.numba_tools import bare, draw, kernel
from hotloop.training.envs.ricochet.board_kernels import find_stops, make_board, pack_robots, slide
from hotloop.training.envs.ricochet.config import RUNNING, SOLVED, STOPS, SYMBOLIC, TIMEOUT
from hotloop.training.envs.ricochet.memory_layout import (
    AGAIN,
    CAUSE_ROW,
    CELLS,
    GOAL,
    MOST_TRIES,
    MOVED,
    NEXT_STEP,
    NO_BOARD,
    OPTIMAL,
    OPTIMAL_ROW,
    OVER,
    RANDOM,
    RESET,
    SAME_STEP,
    STEPS,
    STEPS_ROW,
    TARGET,
    WRONG_ACTION,
    Boards,
    Outputs,
    Rules,
    Search,
    State,
)
from hotloop.training.envs.ricochet.solver import solve_board


@kernel
def take_board(state: State, i: int, boards: Boards) -> None:
    """Draw a board of the bank, all equally likely."""
    k = draw(state.vitals, i, RANDOM, len(boards.facts))
    for cell in range(CELLS):
        state.walls[i, cell] = boards.walls[k, cell]
    for r in range(4):
        state.robots[i, r] = boards.robots[k, r]
    state.vitals[i, GOAL] = boards.facts[k, 0]
    state.vitals[i, TARGET] = boards.facts[k, 1]
    state.vitals[i, OPTIMAL] = boards.facts[k, 2]
    state.vitals[i, MOVED] = boards.facts[k, 3]


@kernel
def new_board(rules: Rules, state: State, i: int, boards: Boards, search: Search) -> bool:
    """Put a board down: of the bank, or made anew until it fits the level. False if none was found."""
    if len(boards.facts):
        take_board(state, i, boards)
        find_stops(rules.size, state.walls, state.stops, i)
        return True
    for _ in range(MOST_TRIES):
        make_board(state, i, rules.size, rules.robots, rules.structures)
        find_stops(rules.size, state.walls, state.stops, i)
        if rules.longest == 0:
            return True
        length = solve_board(state, i, rules.robots, rules.longest, search)
        if length >= rules.shortest and rules.fewest_robots <= state.vitals[i, MOVED] <= rules.most_robots:
            return True
    return False


@kernel
def lay_out(rules: Rules, state: State, i: int) -> None:
    """Note that the board is new, and draw the planes that stay as they are: the walls and the goal."""
    state.begun[i] = True
    size, layer = rules.size, state.layer
    if layer.shape[1] == 0:
        return
    area = size * size
    for k in range(layer.shape[1]):
        layer[i, k] = 0
    for way in range(4):
        for y in range(size):
            for x in range(size):
                layer[i, area * way + size * y + x] = (state.walls[i, 16 * y + x] >> way) & 1
    layer[i, area * 4 + place_of(size, state.vitals[i, GOAL])] = 1


@kernel
def set_up(rules: Rules, state: State, i: int) -> None:
    """Begin an episode on the board that lies there, whose stops are known."""
    state.vitals[i, STEPS] = 0
    state.vitals[i, OVER] = 0
    lay_out(rules, state, i)


@kernel
def restore(rules: Rules, games: State) -> None:
    """Work out what follows from vitals, robots and walls."""
    state = bare_state(games)
    for i in range(len(state.vitals)):
        find_stops(rules.size, state.walls, state.stops, i)
        lay_out(rules, state, i)


@kernel
def place_of(size: int, cell: int) -> int:
    """Number of a cell, counted line by line."""
    return size * (cell >> 4) + (cell & 15)


@kernel
def play(rules: Rules, state: State, i: int, action: int) -> tuple[float, int]:
    """Play one action; return the reward and how the episode ended, if it did."""
    vitals = state.vitals
    vitals[i, STEPS] += 1
    robot = action >> 2
    if robot < rules.robots:
        positions = pack_robots(state.robots, i, rules.robots)
        stop = slide(state.stops, i, positions, rules.robots, robot, action & 3)
        moved = stop != state.robots[i, robot]
        state.robots[i, robot] = stop
        if moved and robot == vitals[i, TARGET] and stop == vitals[i, GOAL]:
            return rules.step + rules.solved, SOLVED
    if vitals[i, STEPS] >= rules.max_steps:
        return rules.step, TIMEOUT
    return rules.step, RUNNING


@kernel
def see_planes(rules: Rules, state: State, i: int, planes: np.ndarray) -> None:
    """Write a game's row of `planes` [N, C·g·g]: walls ×4, goal, target, robots; where asked, where each would stop."""
    size, robots, layer = rules.size, rules.robots, state.layer
    area = size * size
    for k in range(layer.shape[1]):
        planes[i, k] = layer[i, k]
    target = state.vitals[i, TARGET]
    planes[i, area * 5 + place_of(size, int(state.robots[i, target]))] = 1
    for r in range(robots):
        planes[i, area * (6 + r) + place_of(size, int(state.robots[i, r]))] = 1
    if rules.observation == STOPS:
        positions = pack_robots(state.robots, i, robots)
        for r in range(robots):
            for way in range(4):
                stop = slide(state.stops, i, positions, robots, r, way)
                planes[i, area * (6 + robots + 4 * r + way) + place_of(size, stop)] = 1


@kernel
def see_numbers(rules: Rules, state: State, i: int, numbers: np.ndarray) -> None:
    """Write a game's row of `numbers` [N, F]: goal, which is the target, robots, how far each slides each way."""
    robots, far = rules.robots, np.float32(1.0 / (rules.size - 1))
    goal = state.vitals[i, GOAL]
    numbers[i, 0] = np.float32(goal & 15) * far
    numbers[i, 1] = np.float32(goal >> 4) * far
    positions = pack_robots(state.robots, i, robots)
    for r in range(robots):
        cell = int(state.robots[i, r])
        numbers[i, 2 + r] = r == state.vitals[i, TARGET]
        numbers[i, 2 + robots + 2 * r] = np.float32(cell & 15) * far
        numbers[i, 3 + robots + 2 * r] = np.float32(cell >> 4) * far
        for way in range(4):
            stop = slide(state.stops, i, positions, robots, r, way)
            apart = abs((stop >> 4) - (cell >> 4)) + abs((stop & 15) - (cell & 15))
            numbers[i, 2 + 3 * robots + 4 * r + way] = np.float32(apart) * far


@kernel
def see(rules: Rules, state: State, i: int, planes: np.ndarray, numbers: np.ndarray) -> None:
    """Write what the agent sees, unless it sees pictures."""
    if rules.observation <= STOPS:
        see_planes(rules, state, i, planes)
    elif rules.observation == SYMBOLIC:
        see_numbers(rules, state, i, numbers)


@kernel
def copy_row(source: np.ndarray, target: np.ndarray, i: int) -> None:
    """Copy a game's row. An assignment of slices would first look for overlaps, which costs more than the copy."""
    for k in range(source.shape[1]):
        target[i, k] = source[i, k]


@kernel
def tell(vitals: np.ndarray, i: int, cause: int, info: np.ndarray) -> None:
    """Write a game's column of `info` [3, N]."""
    info[STEPS_ROW, i] = vitals[i, STEPS]
    info[OPTIMAL_ROW, i] = vitals[i, OPTIMAL]
    info[CAUSE_ROW, i] = cause


@kernel
def bare_state(state: State) -> State:
    """The same games without reference counts."""
    return State(
        bare(state.vitals), bare(state.robots), bare(state.walls), bare(state.stops), bare(state.layer),
        bare(state.begun),
    )  # fmt: skip


@kernel
def bare_search(search: Search) -> Search:
    """The same memory without reference counts."""
    return Search(
        bare(search.table), bare(search.bound), bare(search.path), bare(search.queue), bare(search.number)
    )  # fmt: skip


@kernel
def step_one(
    rules: Rules, state: State, i: int, action: int, boards: Boards, search: Search
) -> tuple[float, int, bool]:
    """Do what an action asks for in one game; return reward, how the episode ended, and whether a board was found."""
    if action == RESET or (action >= 0 and rules.autoreset == NEXT_STEP and state.vitals[i, OVER]):
        found = new_board(rules, state, i, boards, search)
        set_up(rules, state, i)
        return 0.0, RUNNING, found
    if action == AGAIN:
        find_stops(rules.size, state.walls, state.stops, i)
        set_up(rules, state, i)
    if action < 0:
        return 0.0, RUNNING, True
    reward, cause = play(rules, state, i, action)
    return reward, cause, True


@kernel
def step_range(
    rules: Rules, games: State, stock: tuple[Boards, Search], actions: np.ndarray, out: Outputs, ends: tuple[int, int]
) -> int:
    """Step the games from `ends[0]` up to `ends[1]`; `actions` is int64 [N].

    Returns:
        How many episodes ended; or WRONG_ACTION, then no game was touched; or NO_BOARD.
    """
    for action in actions:
        if action < rules.lowest_action or action >= rules.actions:
            return WRONG_ACTION
    state = bare_state(games)
    boards = Boards(bare(stock[0].walls), bare(stock[0].robots), bare(stock[0].facts))
    search = bare_search(stock[1])
    planes, final_planes = bare(out.planes), bare(out.final_planes)
    numbers, final_numbers = bare(out.numbers), bare(out.final_numbers)
    final_robots, info, final_info = bare(out.final_robots), bare(out.info), bare(out.final_info)
    rewards, terminated, truncated = bare(out.reward), bare(out.terminated), bare(out.truncated)
    ended = 0
    for i in range(ends[0], ends[1]):
        reward, cause, found = step_one(rules, state, i, actions[i], boards, search)
        over = cause != RUNNING
        ended += over
        state.vitals[i, OVER] |= over
        rewards[i] = reward
        terminated[i] = cause == SOLVED
        truncated[i] = cause == TIMEOUT
        tell(state.vitals, i, cause, final_info)
        for r in range(4):
            final_robots[i, r] = state.robots[i, r]
        see(rules, state, i, final_planes, final_numbers)
        resets = over and rules.autoreset == SAME_STEP
        if resets:
            found = new_board(rules, state, i, boards, search)
            set_up(rules, state, i)
            see(rules, state, i, planes, numbers)
        elif rules.autoreset == SAME_STEP:
            copy_row(final_planes, planes, i)
            copy_row(final_numbers, numbers, i)
        if not found:
            return NO_BOARD
        tell(state.vitals, i, RUNNING if resets else cause, info)
    return ended
