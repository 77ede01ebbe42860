"""A small top-down adventure: a hero walks over rooms, picks up things and loses health.

Its state is read once a step as an object with one attribute for each thing that can be owned.
"""

import random

EQUIPMENT = (
    "sword", "arrows", "candle", "whistle", "food", "potion", "magic_rod", "raft", "magic_book", "ring",
    "stepladder", "magic_key", "bracelet", "letter", "bow", "boomerang", "magic_boomerang", "shield", "bombs", "keys",
)  # fmt: skip
MOVES = ((1, 0), (0, 1), (-1, 0), (0, -1))
ROWS, COLUMNS = 22, 32
NEAR = [(dx, dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1)]
TRAPS = [(room, (7 * room + 5 * i) % COLUMNS, (3 * room + 11 * i) % ROWS) for room in range(128) for i in range(5)]


class Link:
    """What the hero owns and where he stands."""

    def __init__(self, values, x, y, room, health):
        for name, value in zip(EQUIPMENT, values, strict=True):
            setattr(self, name, value)
        self.x, self.y, self.room, self.health = x, y, room, health


class Game:
    """Steps the game."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)

    def start(self) -> None:
        """Begin in room 0 with nothing but three hearts."""
        self.values = [0] * len(EQUIPMENT)
        self.x, self.y, self.room, self.health = COLUMNS // 2, ROWS // 2, 0, 3

    def move(self, action: int) -> None:
        """Walk one tile (actions 0..3) or search the tile (4)."""
        if action < 4:
            dx, dy = MOVES[action]
            x, y = self.x + dx, self.y + dy
            if not (0 <= x < COLUMNS and 0 <= y < ROWS):
                self.room = (self.room + dx + 16 * dy) % 128
            self.x, self.y = x % COLUMNS, y % ROWS
        elif self.random.random() < 0.05:
            i = self.random.randrange(len(EQUIPMENT))
            self.values[i] = min(self.values[i] + 1, 8)
        if self.random.random() < 0.01:
            self.health -= 1
