"""Snake on a g x g board, many games stepped as one with torch tensors.

The body is kept as a lifetime per cell: the head has the value of the length, and each move without food
takes one off every cell, so the tail frees itself.
"""

import torch

MOVES = torch.tensor([[0, 1], [1, 0], [0, -1], [-1, 0]])  # right, down, left, up: (row, column)
MAX_STEPS = 1000


class VectorSnake:
    """N games of Snake with relative actions (straight, right, left) and automatic reset."""

    def __init__(self, num_envs: int, size: int, seed: int):
        self.num_envs = num_envs
        self.size = size
        self.rows = torch.arange(num_envs)
        self.rng = torch.Generator().manual_seed(seed)
        self.life = torch.zeros(num_envs, size, size, dtype=torch.int32)
        self.head = torch.zeros(num_envs, 2, dtype=torch.long)
        self.food = torch.zeros(num_envs, 2, dtype=torch.long)
        self.heading = torch.zeros(num_envs, dtype=torch.long)
        self.length = torch.zeros(num_envs, dtype=torch.int32)
        self.age = torch.zeros(num_envs, dtype=torch.int32)
        self.episodes = torch.zeros((), dtype=torch.long)

    def reset(self) -> torch.Tensor:
        """Start all games and return their features, [N, 10]."""
        self._restart(self.rows)
        return self.features()

    def _restart(self, which: torch.Tensor) -> None:
        middle = self.size // 2
        self.life[which] = 0
        for i in range(3):
            self.life[which, middle, middle - i] = 3 - i
        self.head[which] = middle
        self.heading[which] = 0
        self.length[which] = 3
        self.age[which] = 0
        self._place_food(which)

    def _place_food(self, which: torch.Tensor) -> None:
        score = torch.rand(len(which), self.size * self.size, generator=self.rng)
        cell = score.masked_fill_(self.life[which].flatten(1) > 0, -1.0).argmax(1)
        self.food[which] = torch.stack((cell // self.size, cell % self.size), 1)

    def blocked(self, cell: torch.Tensor) -> torch.Tensor:
        """True where `cell` [N, 2] is outside the board or on a body."""
        outside = ((cell < 0) | (cell >= self.size)).any(1)
        inside = cell.clamp(0, self.size - 1)
        return outside | (self.life[self.rows, inside[:, 0], inside[:, 1]] > 0)

    def ahead(self, turn: int) -> torch.Tensor:
        """The cell next to the head, [N, 2], after a turn of 0 (straight), 1 (right) or 3 (left)."""
        return self.head + MOVES[(self.heading + turn) % 4]

    def step(self, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Move all snakes; actions [N] are 0 straight, 1 right, 2 left."""
        self.heading = (self.heading + actions + (actions == 2)) % 4
        before = (self.head - self.food).abs().sum(1)
        cell = self.head + MOVES[self.heading]
        dead = self.blocked(cell)
        cell = torch.where(dead[:, None], self.head, cell)
        eaten = (cell == self.food).all(1) & ~dead
        self.life = torch.where((eaten | dead)[:, None, None], self.life, (self.life - 1).clamp_min(0))
        self.length += eaten
        self.life[self.rows, cell[:, 0], cell[:, 1]] = self.length
        self.head = cell
        self.age += 1
        after = (self.head - self.food).abs().sum(1)
        rewards = 10.0 * eaten - 10.0 * dead - 0.01 + 0.5 * (before - after) / self.size
        late = (self.age >= MAX_STEPS) & ~dead
        rewards = rewards - 5.0 * late
        dones = dead | late
        self._place_food(eaten.nonzero().flatten())
        self._restart(dones.nonzero().flatten())
        self.episodes += dones.sum()
        return self.features(), rewards, dones.float()

    def features(self) -> torch.Tensor:
        """Danger x3, food direction x4, heading x3: [N, 10]."""
        danger = [self.blocked(self.ahead(turn)) for turn in (0, 1, 3)]
        away = self.food - self.head
        food = [away[:, 0] < 0, away[:, 0] > 0, away[:, 1] < 0, away[:, 1] > 0]
        heading = [self.heading == i for i in range(3)]
        return torch.stack(danger + food + heading, 1).float()
