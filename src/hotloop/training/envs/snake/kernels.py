"""One call steps all games: move, reward, end, reset and observation. `twin` says the same in plain Python.

A game is a ring of cells (the body), a bit row per line of the board (what the body covers) and a few integers, among
them the state of its own random numbers; so what happens in one does not depend on how many there are. A cell is one
number, 64·y + x. Arrays are indexed whole, `rows[i, y]`: a view of one game would cost more than what is done with it.
"""

from __future__ import annotations

import numpy as np

from hotloop.training.envs.numba_tools import bare, count_ones, draw, kernel, lowest_one, step_x, step_y
from hotloop.training.envs.snake.bits import FREE, ONE, ZERO, flood
from hotloop.training.envs.snake.config import (
    ENHANCED,
    ENTRAPMENT,
    FLOOD,
    GRID,
    NOWHERE,
    RIGHT,
    RUNNING,
    SELECTIVE,
    SELF,
    START_LENGTH,
    TIMEOUT,
    WALL,
    WIN,
)
from hotloop.training.envs.snake.memory_layout import (
    CAUSE_ROW,
    FOOD,
    HEAD,
    HEADING,
    LENGTH,
    LENGTH_ROW,
    NEXT_STEP,
    OVER,
    RANDOM,
    RESET,
    SAME_STEP,
    SCORE_ROW,
    STEPS,
    STEPS_ROW,
    Outputs,
    Position,
    Rules,
    State,
)


@kernel
def place_food(board: int, vitals: np.ndarray, rows: np.ndarray, i: int) -> None:
    """Put the food on a free cell, all equally likely; a full board gets none."""
    free_cells = board * board - vitals[i, LENGTH]
    if free_cells == 0:
        vitals[i, FOOD] = NOWHERE
        return
    wanted = draw(vitals, i, RANDOM, free_cells)
    full = ~ZERO >> np.uint64(64 - board)
    y = 0
    free = ~rows[i, 0] & full
    while wanted >= count_ones(free):
        wanted -= count_ones(free)
        y += 1
        free = ~rows[i, y] & full
    for _ in range(wanted):
        free &= free - ONE
    vitals[i, FOOD] = (y << 6) | lowest_one(free)


@kernel
def begin(board: int, vitals: np.ndarray, rows: np.ndarray, body: np.ndarray, i: int) -> None:
    """Begin an episode: length 3, head in the centre, heading right."""
    centre = board // 2
    for y in range(board):
        rows[i, y] = ZERO
    for k in range(START_LENGTH):
        body[i, k] = (centre << 6) | (centre - START_LENGTH + 1 + k)
    rows[i, centre] = np.uint64((1 << START_LENGTH) - 1) << np.uint64(centre - START_LENGTH + 1)
    vitals[i, HEAD] = START_LENGTH - 1
    vitals[i, LENGTH] = START_LENGTH
    vitals[i, HEADING] = RIGHT
    vitals[i, STEPS] = 0
    vitals[i, OVER] = 0
    place_food(board, vitals, rows, i)


@kernel
def tail_slot(board: int, head: int, length: int) -> int:
    """Where in the ring the tail is."""
    slot = head - length + 1
    return slot if slot >= 0 else slot + board * board


@kernel
def locate(rules: Rules, vitals: np.ndarray, body: np.ndarray, i: int) -> Position:
    """Gather where a game stands."""
    head, length = vitals[i, HEAD], vitals[i, LENGTH]
    cell, tail = np.int64(body[i, head]), np.int64(body[i, tail_slot(rules.board, head, length)])
    open_cell = tail if rules.tail_free else NOWHERE
    x, y = cell & 63, cell >> 6
    return Position(x, y, vitals[i, HEADING], length, vitals[i, FOOD], tail, open_cell)  # pyright: ignore[reportArgumentType]


@kernel
def is_fatal(board: int, rows: np.ndarray, i: int, open_cell: int, x: int, y: int) -> bool:
    """Is a cell outside of the board, or covered and not open?"""
    if x < 0 or y < 0 or x >= board or y >= board:
        return True
    return ((rows[i, y] >> np.uint64(x)) & ONE) != ZERO and ((y << 6) | x) != open_cell


@kernel
def is_way_fatal(board: int, rows: np.ndarray, i: int, at: Position, way: int) -> bool:
    """Would a step that way kill?"""
    return is_fatal(board, rows, i, at.open_cell, at.x + step_x(way & 3), at.y + step_y(way & 3))


@kernel
def turned(rules: Rules, heading: int, action: int) -> int:
    """The heading after an action: straight, left, right, or one of the four ways but not back."""
    if rules.actions == 3:
        return (heading + (0, 3, 1)[action]) & 3
    return heading if (action ^ heading) == 2 else action


@kernel
def advance(board: int, vitals: np.ndarray, rows: np.ndarray, body: np.ndarray, i: int, cell: int) -> None:
    """Move the head to a cell that is not fatal."""
    head, length = vitals[i, HEAD], vitals[i, LENGTH]
    ate = cell == vitals[i, FOOD]
    if not ate:
        tail = np.int64(body[i, tail_slot(board, head, length)])
        rows[i, tail >> 6] &= ~(ONE << np.uint64(tail & 63))
    head = head + 1 if head + 1 < board * board else 0
    vitals[i, HEAD] = head
    body[i, head] = cell
    rows[i, cell >> 6] |= ONE << np.uint64(cell & 63)
    if ate:
        vitals[i, LENGTH] = length + 1
        place_food(board, vitals, rows, i)


@kernel
def play(
    rules: Rules, vitals: np.ndarray, rows: np.ndarray, body: np.ndarray, i: int, action: int
) -> tuple[float, int]:
    """Play one action; return the reward and how the episode ended, if it did. A dead snake stays as it was."""
    board = rules.board
    at = locate(rules, vitals, body, i)
    vitals[i, STEPS] += 1
    way = turned(rules, at.heading, action)
    x, y = at.x + step_x(way), at.y + step_y(way)
    if is_fatal(board, rows, i, at.open_cell, x, y):
        if (
            is_way_fatal(board, rows, i, at, at.heading)
            and is_way_fatal(board, rows, i, at, at.heading + 1)
            and is_way_fatal(board, rows, i, at, at.heading + 3)
        ):
            return rules.death, ENTRAPMENT
        return rules.death, SELF if 0 <= x < board and 0 <= y < board else WALL
    vitals[i, HEADING] = way
    cell = (y << 6) | x
    advance(board, vitals, rows, body, i, cell)
    if cell == at.food:
        reward = rules.food
    else:
        food_x, food_y = at.food & 63, at.food >> 6
        nearer = abs(food_x - at.x) + abs(food_y - at.y) - abs(food_x - x) - abs(food_y - y)
        reward = rules.step + rules.shaping * nearer / board
    if vitals[i, LENGTH] == board * board:
        return reward, WIN
    if vitals[i, STEPS] >= rules.max_steps:
        return reward + rules.timeout, TIMEOUT
    return reward, RUNNING


@kernel
def see_basic(rules: Rules, rows: np.ndarray, i: int, at: Position, target: np.ndarray) -> None:
    """Write features 0 to 9: danger straight, left, right; food up, right, down, left; heading up, right, down."""
    target[i, 0] = is_way_fatal(rules.board, rows, i, at, at.heading)
    target[i, 1] = is_way_fatal(rules.board, rows, i, at, at.heading + 3)
    target[i, 2] = is_way_fatal(rules.board, rows, i, at, at.heading + 1)
    see_directions(target, i, 3, at, at.food)
    for way in range(3):
        target[i, 7 + way] = at.heading == way


@kernel
def see_directions(target: np.ndarray, i: int, first: int, at: Position, cell: int) -> None:
    """Write four features: is a cell up, right, down, left of the head? A cell that is nowhere is in no direction."""
    dx, dy = (cell & 63) - at.x, (cell >> 6) - at.y
    somewhere = cell != NOWHERE
    target[i, first] = somewhere and dy < 0
    target[i, first + 1] = somewhere and dx > 0
    target[i, first + 2] = somewhere and dy > 0
    target[i, first + 3] = somewhere and dx < 0


@kernel
def see_space(rules: Rules, rows: np.ndarray, i: int, at: Position, target: np.ndarray, scratch: np.ndarray) -> None:
    """Write features 10 to 12, the room straight, right, left, and 17, is the tail in reach. `scratch` is [4, g]."""
    board, tail_x, tail_y = rules.board, at.tail & 63, at.tail >> 6
    full = ~ZERO >> np.uint64(64 - board)
    for y in range(board):
        scratch[FREE, y] = ~rows[i, y] & full
    if at.open_cell != NOWHERE:
        scratch[FREE, tail_y] |= ONE << np.uint64(tail_x)
    open_cells = board * board - at.length + (at.open_cell != NOWHERE)
    meets_tail = abs(at.x - tail_x) + abs(at.y - tail_y) == 1
    flooded = 0
    for k in range(3):
        way = (at.heading + k + (k >> 1)) & 3
        x, y = at.x + step_x(way), at.y + step_y(way)
        room = np.float32(0.0)
        if not is_fatal(board, rows, i, at.open_cell, x, y):
            known = region_of(scratch, flooded, x, y)
            if known != NOWHERE:
                room = target[i, 10 + known]
            else:
                room = np.float32(flood(scratch, k, x, y) / open_cells)
                flooded |= 1 << k
        target[i, 10 + k] = room
    if rules.level >= SELECTIVE:
        for way in range(4):
            x, y = tail_x + step_x(way), tail_y + step_y(way)
            if 0 <= x < board and 0 <= y < board:
                meets_tail |= region_of(scratch, flooded, x, y) != NOWHERE
        target[i, 17] = meets_tail


@kernel
def region_of(scratch: np.ndarray, flooded: int, x: int, y: int) -> int:
    """Which of the flooded regions, named by the bits of `flooded`, holds a cell?"""
    for k in range(3):
        if (flooded >> k) & 1 and ((scratch[k, y] >> np.uint64(x)) & ONE) != ZERO:
            return k
    return NOWHERE


@kernel
def see_ahead(rules: Rules, rows: np.ndarray, i: int, at: Position, target: np.ndarray) -> None:
    """Write features 18 to 22: ways on after a step straight, right, left; distance of the tail; length."""
    board = rules.board
    for k in range(3):
        way = (at.heading + k + (k >> 1)) & 3
        x, y, ways_on = at.x + step_x(way), at.y + step_y(way), 0
        if not is_fatal(board, rows, i, at.open_cell, x, y):
            for side in range(4):
                ways_on += not is_fatal(board, rows, i, at.open_cell, x + step_x(side), y + step_y(side))
        target[i, 18 + k] = ways_on / 4
    distance = abs((at.tail & 63) - at.x) + abs((at.tail >> 6) - at.y)
    target[i, 21] = distance / (2 * (board - 1))
    target[i, 22] = at.length / (board * board)


@kernel
def see_grid(board: int, vitals: np.ndarray, body: np.ndarray, i: int, target: np.ndarray) -> None:
    """Write head, body and food of one game as 0 and 1 into its row of `target` [N, g·g·3]."""
    for k in range(target.shape[1]):
        target[i, k] = 0
    slot, channel = vitals[i, HEAD], 0
    for _ in range(vitals[i, LENGTH]):
        cell = np.int64(body[i, slot])
        target[i, 3 * ((cell >> 6) * board + (cell & 63)) + channel] = 1
        slot, channel = slot - 1 if slot > 0 else board * board - 1, 1
    food = vitals[i, FOOD]
    if food != NOWHERE:
        target[i, 3 * ((food >> 6) * board + (food & 63)) + 2] = 1


@kernel
def see_features(rules: Rules, rows: np.ndarray, i: int, at: Position, target: np.ndarray, scratch: np.ndarray) -> None:
    """Write the features of one game into its row of `target` [N, F]; docs/envs-snake.md lists them."""
    see_basic(rules, rows, i, at, target)
    if rules.level >= FLOOD:
        see_space(rules, rows, i, at, target, scratch)
    if rules.level >= SELECTIVE:
        see_directions(target, i, 13, at, at.tail)
    if rules.level >= ENHANCED:
        see_ahead(rules, rows, i, at, target)


@kernel
def tell(vitals: np.ndarray, i: int, cause: int, info: np.ndarray) -> None:
    """Write a game's column of `info` [4, N]."""
    info[SCORE_ROW, i] = vitals[i, LENGTH] - START_LENGTH
    info[LENGTH_ROW, i] = vitals[i, LENGTH]
    info[STEPS_ROW, i] = vitals[i, STEPS]
    info[CAUSE_ROW, i] = cause


@kernel
def copy_row(source: np.ndarray, target: np.ndarray, i: int) -> None:
    """Copy a game's row. An assignment of slices would first look for overlaps, which costs more than the copy."""
    for k in range(source.shape[1]):
        target[i, k] = source[i, k]


@kernel
def step_range(rules: Rules, state: State, actions: np.ndarray, out: Outputs, first: int, last: int) -> int:
    """Step the games from `first` up to `last`; `actions` is int64 [N].

    Returns:
        How many episodes ended, or -1 if there is a wrong action; then no game was touched.
    """
    for action in actions:
        if action < rules.lowest_action or action >= rules.actions:
            return -1
    vitals, rows, body = bare(state.vitals), bare(state.rows), bare(state.body)
    features, final_features, grid, final_grid = (
        bare(out.features), bare(out.final_features), bare(out.grid), bare(out.final_grid)
    )  # fmt: skip
    rewards, terminated, truncated = bare(out.reward), bare(out.terminated), bare(out.truncated)
    info, final_info = bare(out.info), bare(out.final_info)
    lines = np.empty((4, rules.board), np.uint64)
    scratch = bare(lines)
    ended = 0
    for i in range(first, last):
        action, reward, cause = actions[i], 0.0, RUNNING
        if action == RESET or (action >= 0 and rules.autoreset == NEXT_STEP and vitals[i, OVER]):
            begin(rules.board, vitals, rows, body, i)
        elif action >= 0:
            reward, cause = play(rules, vitals, rows, body, i, action)
        over = cause != RUNNING
        ended += over
        vitals[i, OVER] |= over
        rewards[i] = reward
        terminated[i] = over and cause != TIMEOUT
        truncated[i] = cause == TIMEOUT
        tell(vitals, i, cause, final_info)
        resets = over and rules.autoreset == SAME_STEP
        if rules.level == GRID:
            see_grid(rules.board, vitals, body, i, final_grid)
            copy_row(final_grid, grid, i)
        else:
            see_features(rules, rows, i, locate(rules, vitals, body, i), final_features, scratch)
            copy_row(final_features, features, i)
        if resets:
            begin(rules.board, vitals, rows, body, i)
            if rules.level == GRID:
                see_grid(rules.board, vitals, body, i, grid)
            else:
                see_features(rules, rows, i, locate(rules, vitals, body, i), features, scratch)
        tell(vitals, i, RUNNING if resets else cause, info)
    # Numba frees an array after its last use, and `scratch` does not hold it: so this is the last use.
    lines[0, 0] = ZERO
    return ended
