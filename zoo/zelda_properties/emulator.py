"""A small top-down adventure that keeps its state in 2 KB of RAM, as a console does.

The hero walks over rooms of 22 x 32 tiles, picks up things and loses health to what walks there.
"""

import numpy as np

LEVEL, ROOM, HERO_X, HERO_Y, HEALTH, IN_CAVE = range(6)
EQUIPMENT = 16  # twenty bytes, one for each thing that can be owned
TILES = 64
ROWS, COLUMNS = 22, 32
MOVES = ((1, 0), (0, 1), (-1, 0), (0, -1))


class Emulator:
    """Steps the game and shows its RAM."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.maps = self.rng.integers(0, 160, (128, ROWS * COLUMNS), dtype=np.uint8)
        self.ram = np.zeros(TILES + ROWS * COLUMNS, np.uint8)

    def reset(self) -> np.ndarray:
        """Start in room 0 with three hearts; returns the RAM."""
        self.ram[:TILES] = 0
        self.ram[[HERO_X, HERO_Y, HEALTH]] = COLUMNS // 2, ROWS // 2, 3
        self.frame = 0
        self._enter(0)
        return self.ram

    def _enter(self, room: int) -> None:
        self.ram[ROOM] = room
        self.ram[TILES:] = self.maps[room]

    def step(self, action: int) -> np.ndarray:
        """Walk one tile (actions 0..3) or search the tile (4); returns the RAM."""
        self.frame += 1
        if action < 4:
            self._walk(*MOVES[action])
        elif self.rng.random() < 0.05:
            self.ram[EQUIPMENT + self.rng.integers(20)] = 1
        if self.rng.random() < 0.01:
            self.ram[HEALTH] -= 1
        return self.ram

    def _walk(self, dx: int, dy: int) -> None:
        x, y = int(self.ram[HERO_X]) + dx, int(self.ram[HERO_Y]) + dy
        if 0 <= x < COLUMNS and 0 <= y < ROWS:
            self.ram[HERO_X], self.ram[HERO_Y] = x, y
            return
        room = int(self.ram[ROOM])
        row, column = (room // 16 + dy) % 8, (room + dx) % 16
        self._enter(row * 16 + column)
        self.ram[HERO_X], self.ram[HERO_Y] = x % COLUMNS, y % ROWS
