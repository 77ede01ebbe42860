"""One call steps all games: move, reward, end, reset and observation. `reference` is the same in plain Python.

Where the walls stop a robot is precomputed for every cell and direction. A robot slides there, or to the cell before
the nearest robot in its path, without visiting the cells between. The static part of an observation is drawn when an
episode starts; a step copies it and adds the robots. `raster` draws pictures.
"""

from __future__ import annotations

import numpy as np

from hotloop.training.envs.autoreset import NEXT_STEP, RESET, SAME_STEP
from hotloop.training.envs.kernel_vector import Outputs
from hotloop.training.envs.numba_tools import borrow, copy_row, draw, kernel
from hotloop.training.envs.ricochet import memory_layout as layout
from hotloop.training.envs.ricochet.board_kernels import find_stops, make_board, pack_robots, slide
from hotloop.training.envs.ricochet.config import RUNNING, SOLVED, STOPS, SYMBOLIC, TIMEOUT
from hotloop.training.envs.ricochet.memory_layout import Boards, Rules, Search, State
from hotloop.training.envs.ricochet.solver import solve_board


@kernel
def take_board(state: State, i: int, boards: Boards) -> None:
    """Take a random board of the bank."""
    k = draw(state.vitals, i, layout.RANDOM, len(boards.facts))
    for cell in range(layout.CELLS):
        state.walls[i, cell] = boards.walls[k, cell]
    for r in range(4):
        state.robots[i, r] = boards.robots[k, r]
    state.vitals[i, layout.GOAL] = boards.facts[k, 0]
    state.vitals[i, layout.TARGET] = boards.facts[k, 1]
    state.vitals[i, layout.OPTIMAL] = boards.facts[k, 2]
    state.vitals[i, layout.MOVED] = boards.facts[k, 3]


@kernel
def new_board(rules: Rules, state: State, i: int, boards: Boards, search: Search) -> bool:
    """Set up a board from the bank, or generate boards until one fits the level. Return whether one was found."""
    if len(boards.facts):
        take_board(state, i, boards)
        find_stops(rules.size, state.walls, state.stops, i)
        return True
    for _ in range(layout.MAX_TRIES):
        make_board(state, i, rules.size, rules.robots, rules.structures)
        find_stops(rules.size, state.walls, state.stops, i)
        if rules.longest == 0:
            return True
        length = solve_board(state, i, rules.robots, rules.longest, search)
        if length >= rules.shortest and rules.fewest_robots <= state.vitals[i, layout.MOVED] <= rules.most_robots:
            return True
    return False


@kernel
def draw_static_planes(rules: Rules, state: State, i: int) -> None:
    """Mark the board for redrawing, and draw the planes that do not change in an episode: walls and goal."""
    state.needs_redraw[i] = True
    size, layer = rules.size, state.layer
    if layer.shape[1] == 0:
        return
    area = size * size
    for k in range(layer.shape[1]):
        layer[i, k] = 0
    for direction in range(4):
        for y in range(size):
            for x in range(size):
                layer[i, area * direction + size * y + x] = (state.walls[i, 16 * y + x] >> direction) & 1
    layer[i, area * 4 + cell_index(size, state.vitals[i, layout.GOAL])] = 1


@kernel
def start_episode(rules: Rules, state: State, i: int) -> None:
    """Start an episode on the current board, whose stops are known."""
    state.vitals[i, layout.STEPS] = 0
    state.vitals[i, layout.OVER] = 0
    draw_static_planes(rules, state, i)


@kernel
def restore(rules: Rules, games: State) -> None:
    """Compute the arrays that are derived from vitals and walls."""
    state = borrow_state(games)
    for i in range(len(state.vitals)):
        find_stops(rules.size, state.walls, state.stops, i)
        draw_static_planes(rules, state, i)


@kernel
def cell_index(size: int, cell: int) -> int:
    """Return the row-major index of a cell on a board without padding."""
    return size * (cell >> 4) + (cell & 15)


@kernel
def play(rules: Rules, state: State, i: int, action: int) -> tuple[float, int]:
    """Play one action; return the reward and the cause of the episode's end."""
    vitals = state.vitals
    vitals[i, layout.STEPS] += 1
    robot = action >> 2
    if robot < rules.robots:
        positions = pack_robots(state.robots, i, rules.robots)
        stop = slide(state.stops, i, positions, rules.robots, robot, action & 3)
        moved = stop != state.robots[i, robot]
        state.robots[i, robot] = stop
        if moved and robot == vitals[i, layout.TARGET] and stop == vitals[i, layout.GOAL]:
            return rules.step + rules.solved, SOLVED
    if vitals[i, layout.STEPS] >= rules.max_steps:
        return rules.step, TIMEOUT
    return rules.step, RUNNING


@kernel
def write_planes(rules: Rules, state: State, i: int, planes: np.ndarray) -> None:
    """Write a game's row of `planes` [N, C·g·g]: walls ×4, goal, target, robots; with STOPS, where each would stop."""
    size, robots, layer = rules.size, rules.robots, state.layer
    area = size * size
    for k in range(layer.shape[1]):
        planes[i, k] = layer[i, k]
    target = state.vitals[i, layout.TARGET]
    planes[i, area * 5 + cell_index(size, int(state.robots[i, target]))] = 1
    for r in range(robots):
        planes[i, area * (6 + r) + cell_index(size, int(state.robots[i, r]))] = 1
    if rules.observation == STOPS:
        positions = pack_robots(state.robots, i, robots)
        for r in range(robots):
            for direction in range(4):
                stop = slide(state.stops, i, positions, robots, r, direction)
                planes[i, area * (6 + robots + 4 * r + direction) + cell_index(size, stop)] = 1


@kernel
def write_numbers(rules: Rules, state: State, i: int, numbers: np.ndarray) -> None:
    """Write a game's row of `numbers` [N, F]: goal, target robot, robots, and how far each slides in each direction."""
    robots, scale = rules.robots, np.float32(1.0 / (rules.size - 1))
    goal = state.vitals[i, layout.GOAL]
    numbers[i, 0] = np.float32(goal & 15) * scale
    numbers[i, 1] = np.float32(goal >> 4) * scale
    positions = pack_robots(state.robots, i, robots)
    for r in range(robots):
        cell = int(state.robots[i, r])
        numbers[i, 2 + r] = r == state.vitals[i, layout.TARGET]
        numbers[i, 2 + robots + 2 * r] = np.float32(cell & 15) * scale
        numbers[i, 3 + robots + 2 * r] = np.float32(cell >> 4) * scale
        for direction in range(4):
            stop = slide(state.stops, i, positions, robots, r, direction)
            distance = abs((stop >> 4) - (cell >> 4)) + abs((stop & 15) - (cell & 15))
            numbers[i, 2 + 3 * robots + 4 * r + direction] = np.float32(distance) * scale


@kernel
def write_observation(rules: Rules, state: State, i: int, planes: np.ndarray, numbers: np.ndarray) -> None:
    """Write a game's observation, except for `rgb`."""
    if rules.observation <= STOPS:
        write_planes(rules, state, i, planes)
    elif rules.observation == SYMBOLIC:
        write_numbers(rules, state, i, numbers)


@kernel
def write_info(vitals: np.ndarray, i: int, cause: int, info: np.ndarray) -> None:
    """Write a game's column of `info` [3, N]."""
    info[layout.STEPS_ROW, i] = vitals[i, layout.STEPS]
    info[layout.OPTIMAL_ROW, i] = vitals[i, layout.OPTIMAL]
    info[layout.CAUSE_ROW, i] = cause


@kernel
def borrow_state(state: State) -> State:
    """Return the same state without reference counts."""
    return State(
        borrow(state.vitals),
        borrow(state.robots),
        borrow(state.walls),
        borrow(state.stops),
        borrow(state.layer),
        borrow(state.needs_redraw),
        borrow(state.final_robots),
    )


@kernel
def borrow_search(search: Search) -> Search:
    """Return the solver's arrays, on the same memory, without reference counts."""
    return Search(
        borrow(search.table), borrow(search.bound), borrow(search.path), borrow(search.queue), borrow(search.number)
    )


@kernel
def step_one(
    rules: Rules, state: State, i: int, action: int, boards: Boards, search: Search
) -> tuple[float, int, bool]:
    """Apply an action to one game; return the reward, the cause of the episode's end, and whether a board was found."""
    if action == RESET or (action >= 0 and rules.autoreset == NEXT_STEP and state.vitals[i, layout.OVER]):
        found = new_board(rules, state, i, boards, search)
        start_episode(rules, state, i)
        return 0.0, RUNNING, found
    if action == layout.RESTART:
        find_stops(rules.size, state.walls, state.stops, i)
        start_episode(rules, state, i)
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
        Number of episodes that ended, or WRONG_ACTION, in which case no game was changed, or NO_BOARD.
    """
    for action in actions:
        if action < rules.lowest_action or action >= rules.actions:
            return layout.WRONG_ACTION
    state = borrow_state(games)
    boards = Boards(borrow(stock[0].walls), borrow(stock[0].robots), borrow(stock[0].facts))
    search = borrow_search(stock[1])
    planes, final_planes = borrow(out.planes), borrow(out.final_planes)
    numbers, final_numbers = borrow(out.numbers), borrow(out.final_numbers)
    info, final_info = borrow(out.info), borrow(out.final_info)
    rewards, terminated, truncated = borrow(out.reward), borrow(out.terminated), borrow(out.truncated)
    ended = 0
    for i in range(ends[0], ends[1]):
        reward, cause, found = step_one(rules, state, i, actions[i], boards, search)
        over = cause != RUNNING
        ended += over
        state.vitals[i, layout.OVER] |= over
        rewards[i] = reward
        terminated[i] = cause == SOLVED
        truncated[i] = cause == TIMEOUT
        write_info(state.vitals, i, cause, final_info)
        copy_row(state.robots, state.final_robots, i)
        write_observation(rules, state, i, final_planes, final_numbers)
        resets = over and rules.autoreset == SAME_STEP
        if resets:
            found = new_board(rules, state, i, boards, search)
            start_episode(rules, state, i)
            write_observation(rules, state, i, planes, numbers)
        elif rules.autoreset == SAME_STEP:
            copy_row(final_planes, planes, i)
            copy_row(final_numbers, numbers, i)
        if not found:
            return layout.NO_BOARD
        write_info(state.vitals, i, RUNNING if resets else cause, info)
    return ended
