"""A small top-down adventure: a hero walks through rooms and hits slimes. RGB frames, 224 x 240.

Stands in for a console emulator: a frame is a copy of the room's picture with the sprites pasted in.
"""

import numpy as np

HEIGHT, WIDTH, SPRITE = 224, 240, 16
MOVES = ((0, 4), (4, 0), (0, -4), (-4, 0))


class AdventureEnv:
    """Actions 0..3 walk, 4 strikes. Reward 1 for a slime hit, -0.01 a step; a hero touched loses a heart."""

    actions = 5

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        tiles = self.rng.integers(40, 120, (16, HEIGHT // 16, WIDTH // 16, 3), dtype=np.uint8)
        self.rooms = tiles.repeat(16, axis=1).repeat(16, axis=2)

    def reset(self) -> np.ndarray:
        """Start in the first room; returns the first frame, [224, 240, 3] uint8."""
        self.room, self.hearts, self.steps = 0, 3, 0
        self.hero = [HEIGHT // 2, WIDTH // 2]
        self.slimes = self._spawn()
        return self._frame()

    def _spawn(self) -> np.ndarray:
        return self.rng.integers(0, (HEIGHT - SPRITE, WIDTH - SPRITE), (4, 2))

    def step(self, action: int) -> tuple[np.ndarray, float, bool]:
        """Play one frame."""
        reward = -0.01
        self.steps += 1
        self.slimes = np.clip(self.slimes + self.rng.integers(-3, 4, (4, 2)), 0, (HEIGHT - 16, WIDTH - 16))
        near = np.abs(self.slimes - self.hero).max(1) < 20
        if action == 4 and near.any():
            reward += 1.0
            self.slimes[near] = self._spawn()[near]
        elif near.any() and self.steps % 20 == 0:
            self.hearts -= 1
        if action < 4:
            self._walk(MOVES[action])
        return self._frame(), reward, self.hearts <= 0 or self.steps >= 1000

    def _walk(self, move: tuple[int, int]) -> None:
        y, x = self.hero[0] + move[0], self.hero[1] + move[1]
        if not (0 <= y <= HEIGHT - SPRITE and 0 <= x <= WIDTH - SPRITE):
            self.room = (self.room + 1) % len(self.rooms)
            self.slimes = self._spawn()
            y, x = HEIGHT // 2, WIDTH // 2
        self.hero = [y, x]

    def _frame(self) -> np.ndarray:
        frame = self.rooms[self.room].copy()
        for y, x in self.slimes:
            frame[y : y + SPRITE, x : x + SPRITE] = (40, 200, 40)
        y, x = self.hero
        frame[y : y + SPRITE, x : x + SPRITE] = (230, 200, 60)
        return frame
