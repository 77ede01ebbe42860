"""One call steps all games: move, reward, end, reset and observation. `reference` is the same in plain Python.

A game is a ring buffer of cells (the body), a bit row per line of the board (the cells that the body covers) and a few
integers. Each game has its own random state, so its course does not depend on the number of games. A cell is one
number, 64·y + x. Kernels index the arrays of all games, `rows[i, y]`: making a view of one game costs more than using
it.
"""

from __future__ import annotations

import numpy as np

from hotloop.training.envs.autoreset import NEXT_STEP, RESET, SAME_STEP
from hotloop.training.envs.kernel_vector import Outputs
from hotloop.training.envs.numba_tools import borrow, copy_row, count_ones, draw, kernel, lowest_one, step_x, step_y
from hotloop.training.envs.snake import config
from hotloop.training.envs.snake import memory_layout as layout
from hotloop.training.envs.snake.bits import FREE, ONE, ZERO, flood
from hotloop.training.envs.snake.memory_layout import Position, Rules, State


@kernel
def place_food(board: int, vitals: np.ndarray, rows: np.ndarray, i: int) -> None:
    """Put the food on a random free cell; a full board gets none."""
    free_cells = board * board - vitals[i, layout.LENGTH]
    if free_cells == 0:
        vitals[i, layout.FOOD] = config.NOWHERE
        return
    wanted = draw(vitals, i, layout.RANDOM, free_cells)
    full = ~ZERO >> np.uint64(64 - board)
    y = 0
    free = ~rows[i, 0] & full
    while wanted >= count_ones(free):
        wanted -= count_ones(free)
        y += 1
        free = ~rows[i, y] & full
    for _ in range(wanted):
        free &= free - ONE
    vitals[i, layout.FOOD] = (y << 6) | lowest_one(free)


@kernel
def start_episode(board: int, vitals: np.ndarray, rows: np.ndarray, body: np.ndarray, i: int) -> None:
    """Start an episode: length 3, head in the centre, heading right."""
    centre = board // 2
    for y in range(board):
        rows[i, y] = ZERO
    for k in range(config.START_LENGTH):
        body[i, k] = (centre << 6) | (centre - config.START_LENGTH + 1 + k)
    rows[i, centre] = np.uint64((1 << config.START_LENGTH) - 1) << np.uint64(centre - config.START_LENGTH + 1)
    vitals[i, layout.HEAD] = config.START_LENGTH - 1
    vitals[i, layout.LENGTH] = config.START_LENGTH
    vitals[i, layout.HEADING] = config.RIGHT
    vitals[i, layout.STEPS] = 0
    vitals[i, layout.OVER] = 0
    place_food(board, vitals, rows, i)


@kernel
def tail_slot(board: int, head: int, length: int) -> int:
    """Return the tail's slot in the ring buffer."""
    slot = head - length + 1
    return slot if slot >= 0 else slot + board * board


@kernel
def locate(rules: Rules, vitals: np.ndarray, body: np.ndarray, i: int) -> Position:
    """Return the position of game i."""
    head, length = vitals[i, layout.HEAD], vitals[i, layout.LENGTH]
    cell, tail = np.int64(body[i, head]), np.int64(body[i, tail_slot(rules.board, head, length)])
    open_cell = tail if rules.tail_free else config.NOWHERE
    x, y = cell & 63, cell >> 6
    return Position(x, y, vitals[i, layout.HEADING], length, vitals[i, layout.FOOD], tail, open_cell)  # pyright: ignore[reportArgumentType]


@kernel
def is_fatal(board: int, rows: np.ndarray, i: int, open_cell: int, x: int, y: int) -> bool:
    """Return whether a cell is outside the board, or covered and not the open one."""
    if x < 0 or y < 0 or x >= board or y >= board:
        return True
    return ((rows[i, y] >> np.uint64(x)) & ONE) != ZERO and ((y << 6) | x) != open_cell


@kernel
def is_direction_fatal(board: int, rows: np.ndarray, i: int, at: Position, direction: int) -> bool:
    """Return whether a step in a direction would be fatal."""
    return is_fatal(board, rows, i, at.open_cell, at.x + step_x(direction & 3), at.y + step_y(direction & 3))


@kernel
def next_heading(rules: Rules, heading: int, action: int) -> int:
    """Return the heading after an action.

    With three actions: straight, left, right. With four: the direction itself, where reversing is ignored.
    """
    if rules.actions == 3:
        return (heading + (0, 3, 1)[action]) & 3
    return heading if (action ^ heading) == 2 else action


@kernel
def advance(board: int, vitals: np.ndarray, rows: np.ndarray, body: np.ndarray, i: int, cell: int) -> None:
    """Move the head to a cell that is not fatal."""
    head, length = vitals[i, layout.HEAD], vitals[i, layout.LENGTH]
    ate = cell == vitals[i, layout.FOOD]
    if not ate:
        tail = np.int64(body[i, tail_slot(board, head, length)])
        rows[i, tail >> 6] &= ~(ONE << np.uint64(tail & 63))
    head = head + 1 if head + 1 < board * board else 0
    vitals[i, layout.HEAD] = head
    body[i, head] = cell
    rows[i, cell >> 6] |= ONE << np.uint64(cell & 63)
    if ate:
        vitals[i, layout.LENGTH] = length + 1
        place_food(board, vitals, rows, i)


@kernel
def play(
    rules: Rules, vitals: np.ndarray, rows: np.ndarray, body: np.ndarray, i: int, action: int
) -> tuple[float, int]:
    """Play one action; return the reward and the cause of the episode's end. A snake that dies does not move."""
    board = rules.board
    at = locate(rules, vitals, body, i)
    vitals[i, layout.STEPS] += 1
    direction = next_heading(rules, at.heading, action)
    x, y = at.x + step_x(direction), at.y + step_y(direction)
    if is_fatal(board, rows, i, at.open_cell, x, y):
        if (
            is_direction_fatal(board, rows, i, at, at.heading)
            and is_direction_fatal(board, rows, i, at, at.heading + 1)
            and is_direction_fatal(board, rows, i, at, at.heading + 3)
        ):
            return rules.death, config.ENTRAPMENT
        return rules.death, config.SELF if 0 <= x < board and 0 <= y < board else config.WALL
    vitals[i, layout.HEADING] = direction
    cell = (y << 6) | x
    advance(board, vitals, rows, body, i, cell)
    if cell == at.food:
        reward = rules.food
    else:
        food_x, food_y = at.food & 63, at.food >> 6
        nearer = abs(food_x - at.x) + abs(food_y - at.y) - abs(food_x - x) - abs(food_y - y)
        reward = rules.step + rules.shaping * nearer / board
    if vitals[i, layout.LENGTH] == board * board:
        return reward, config.WIN
    if vitals[i, layout.STEPS] >= rules.max_steps:
        return reward + rules.timeout, config.TIMEOUT
    return reward, config.RUNNING


@kernel
def write_basic(rules: Rules, rows: np.ndarray, i: int, at: Position, target: np.ndarray) -> None:
    """Write features 0 to 9: danger straight, left, right; food up, right, down, left; heading up, right, down."""
    target[i, 0] = is_direction_fatal(rules.board, rows, i, at, at.heading)
    target[i, 1] = is_direction_fatal(rules.board, rows, i, at, at.heading + 3)
    target[i, 2] = is_direction_fatal(rules.board, rows, i, at, at.heading + 1)
    write_directions(target, i, 3, at, at.food)
    for direction in range(3):
        target[i, 7 + direction] = at.heading == direction


@kernel
def write_directions(target: np.ndarray, i: int, first: int, at: Position, cell: int) -> None:
    """Write four features: is a cell up, right, down, left of the head? All are 0 if the cell is NOWHERE."""
    dx, dy = (cell & 63) - at.x, (cell >> 6) - at.y
    somewhere = cell != config.NOWHERE
    target[i, first] = somewhere and dy < 0
    target[i, first + 1] = somewhere and dx > 0
    target[i, first + 2] = somewhere and dy > 0
    target[i, first + 3] = somewhere and dx < 0


@kernel
def write_space(rules: Rules, rows: np.ndarray, i: int, at: Position, target: np.ndarray, scratch: np.ndarray) -> None:
    """Write features 10 to 12, the free space straight, right, left, and 17, whether the tail can be reached.

    `scratch` is uint64 [4, g].
    """
    board, tail_x, tail_y = rules.board, at.tail & 63, at.tail >> 6
    full = ~ZERO >> np.uint64(64 - board)
    for y in range(board):
        scratch[FREE, y] = ~rows[i, y] & full
    if at.open_cell != config.NOWHERE:
        scratch[FREE, tail_y] |= ONE << np.uint64(tail_x)
    open_cells = board * board - at.length + (at.open_cell != config.NOWHERE)
    tail_reachable = abs(at.x - tail_x) + abs(at.y - tail_y) == 1
    flooded = 0
    for k in range(3):
        direction = (at.heading + k + (k >> 1)) & 3
        x, y = at.x + step_x(direction), at.y + step_y(direction)
        room = np.float32(0.0)
        if not is_fatal(board, rows, i, at.open_cell, x, y):
            known = region_of(scratch, flooded, x, y)
            if known != config.NOWHERE:
                room = target[i, 10 + known]
            else:
                room = np.float32(flood(scratch, k, x, y) / open_cells)
                flooded |= 1 << k
        target[i, 10 + k] = room
    if rules.level >= config.SELECTIVE:
        for direction in range(4):
            x, y = tail_x + step_x(direction), tail_y + step_y(direction)
            if 0 <= x < board and 0 <= y < board:
                tail_reachable |= region_of(scratch, flooded, x, y) != config.NOWHERE
        target[i, 17] = tail_reachable


@kernel
def region_of(scratch: np.ndarray, flooded: int, x: int, y: int) -> int:
    """Return which flooded region contains a cell, or NOWHERE; bit k of `flooded` is set if region k was filled."""
    for k in range(3):
        if (flooded >> k) & 1 and ((scratch[k, y] >> np.uint64(x)) & ONE) != ZERO:
            return k
    return config.NOWHERE


@kernel
def write_ahead(rules: Rules, rows: np.ndarray, i: int, at: Position, target: np.ndarray) -> None:
    """Write features 18 to 22: exits after a step straight, right, left; distance to the tail; length."""
    board = rules.board
    for k in range(3):
        direction = (at.heading + k + (k >> 1)) & 3
        x, y, exits = at.x + step_x(direction), at.y + step_y(direction), 0
        if not is_fatal(board, rows, i, at.open_cell, x, y):
            for side in range(4):
                exits += not is_fatal(board, rows, i, at.open_cell, x + step_x(side), y + step_y(side))
        target[i, 18 + k] = exits / 4
    distance = abs((at.tail & 63) - at.x) + abs((at.tail >> 6) - at.y)
    target[i, 21] = distance / (2 * (board - 1))
    target[i, 22] = at.length / (board * board)


@kernel
def write_grid(board: int, vitals: np.ndarray, body: np.ndarray, i: int, target: np.ndarray) -> None:
    """Write head, body and food of one game as 0 and 1 into its row of `target` [N, g·g·3]."""
    for k in range(target.shape[1]):
        target[i, k] = 0
    slot, channel = vitals[i, layout.HEAD], 0
    for _ in range(vitals[i, layout.LENGTH]):
        cell = np.int64(body[i, slot])
        target[i, 3 * ((cell >> 6) * board + (cell & 63)) + channel] = 1
        slot, channel = slot - 1 if slot > 0 else board * board - 1, 1
    food = vitals[i, layout.FOOD]
    if food != config.NOWHERE:
        target[i, 3 * ((food >> 6) * board + (food & 63)) + 2] = 1


@kernel
def write_features(
    rules: Rules, rows: np.ndarray, i: int, at: Position, target: np.ndarray, scratch: np.ndarray
) -> None:
    """Write the features of one game into its row of `target` [N, F]; docs/envs-snake.md lists them."""
    write_basic(rules, rows, i, at, target)
    if rules.level >= config.FLOOD:
        write_space(rules, rows, i, at, target, scratch)
    if rules.level >= config.SELECTIVE:
        write_directions(target, i, 13, at, at.tail)
    if rules.level >= config.ENHANCED:
        write_ahead(rules, rows, i, at, target)


@kernel
def write_info(vitals: np.ndarray, i: int, cause: int, info: np.ndarray) -> None:
    """Write a game's column of `info` [4, N]."""
    info[layout.SCORE_ROW, i] = vitals[i, layout.LENGTH] - config.START_LENGTH
    info[layout.LENGTH_ROW, i] = vitals[i, layout.LENGTH]
    info[layout.STEPS_ROW, i] = vitals[i, layout.STEPS]
    info[layout.CAUSE_ROW, i] = cause


@kernel
def step_range(rules: Rules, state: State, actions: np.ndarray, out: Outputs, first: int, last: int) -> int:
    """Step the games from `first` up to `last`; `actions` is int64 [N].

    Returns:
        Number of episodes that ended, or -1 if an action is invalid; then no game was changed.
    """
    for action in actions:
        if action < rules.lowest_action or action >= rules.actions:
            return -1
    vitals, rows, body = borrow(state.vitals), borrow(state.rows), borrow(state.body)
    features, final_features = borrow(out.numbers), borrow(out.final_numbers)
    grid, final_grid = borrow(out.planes), borrow(out.final_planes)
    rewards, terminated, truncated = borrow(out.reward), borrow(out.terminated), borrow(out.truncated)
    info, final_info = borrow(out.info), borrow(out.final_info)
    lines = np.empty((4, rules.board), np.uint64)
    scratch = borrow(lines)
    ended = 0
    for i in range(first, last):
        action, reward, cause = actions[i], 0.0, config.RUNNING
        if action == RESET or (action >= 0 and rules.autoreset == NEXT_STEP and vitals[i, layout.OVER]):
            start_episode(rules.board, vitals, rows, body, i)
        elif action >= 0:
            reward, cause = play(rules, vitals, rows, body, i, action)
        over = cause != config.RUNNING
        ended += over
        vitals[i, layout.OVER] |= over
        rewards[i] = reward
        terminated[i] = over and cause != config.TIMEOUT
        truncated[i] = cause == config.TIMEOUT
        write_info(vitals, i, cause, final_info)
        resets = over and rules.autoreset == SAME_STEP
        if rules.level == config.GRID:
            write_grid(rules.board, vitals, body, i, final_grid)
            copy_row(final_grid, grid, i)
        else:
            write_features(rules, rows, i, locate(rules, vitals, body, i), final_features, scratch)
            copy_row(final_features, features, i)
        if resets:
            start_episode(rules.board, vitals, rows, body, i)
            if rules.level == config.GRID:
                write_grid(rules.board, vitals, body, i, grid)
            else:
                write_features(rules, rows, i, locate(rules, vitals, body, i), features, scratch)
        write_info(vitals, i, config.RUNNING if resets else cause, info)
    # Numba frees an array after its last use, and `scratch` only borrows it. This use keeps it alive until here.
    lines[0, 0] = ZERO
    return ended
