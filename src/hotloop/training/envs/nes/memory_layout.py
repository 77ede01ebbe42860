"""Addresses of the game's state in the console's memory, and functions that read it.

The addresses are those publicly documented for Super Mario Bros.; our own `runner` uses the same ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ram = NDArray[np.uint8]
"""The console's memory, [2048]."""

PLAYER_STATE = 0x0E
ENEMY_TYPES = slice(0x16, 0x1B)
FLOAT_STATE = 0x1D
PAGE, X = 0x6D, 0x86
Y_PAGE, Y = 0xB5, 0xCE
LIVES = 0x75A
STAGE, COINS, WORLD, AREA = 0x75C, 0x75E, 0x75F, 0x760
MODE, TASK = 0x770, 0x772
SCORE = slice(0x7DD, 0x7E3)
TIMER = slice(0x7F8, 0x7FB)

DYING, DEAD, PLAYS = 0x0B, 0x06, 0x08
ON_POLE = 3
FLAG = 0x31
MODE_TITLE, MODE_GAME, MODE_VICTORY = 0, 1, 2
TASK_PLAYS = 3


class PlayerStatus(NamedTuple):
    """The part of the game's state that every step needs."""

    x: int
    dead: bool
    flag: bool


def read_status(ram: Ram) -> PlayerStatus:
    """Read the status of the player."""
    # item() is several times faster than indexing and converting.
    item = ram.item
    state = item(PLAYER_STATE)
    dead = state in (DYING, DEAD) or item(Y_PAGE) > 1
    on_pole = item(FLOAT_STATE) == ON_POLE and FLAG in ram[ENEMY_TYPES]
    return PlayerStatus(item(PAGE) * 256 + item(X), dead, on_pole or item(MODE) == MODE_VICTORY)


def is_playing(ram: Ram) -> bool:
    """Return whether a level is running and the player is in control."""
    return bool(ram[MODE] == MODE_GAME and ram[TASK] == TASK_PLAYS and ram[PLAYER_STATE] == PLAYS and ram[TIMER].any())


def is_standing(ram: Ram) -> bool:
    """Return whether the player is on the ground."""
    return bool(ram[FLOAT_STATE] == 0)


def number(digits: Ram) -> int:
    """Read a number stored as one decimal digit per byte."""
    value = 0
    for digit in digits.tolist():
        value = 10 * value + digit
    return value


def details(ram: Ram) -> dict[str, int]:
    """Read the other values of an info."""
    item = ram.item
    return {
        "y": item(Y),
        "time": number(ram[TIMER]),
        "coins": item(COINS),
        "score": 10 * number(ram[SCORE]),
    }
