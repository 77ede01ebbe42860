"""Snake as the study had it: tensors for the state, a Python loop over the games for everything that is not arithmetic.

Written afresh from what the study says of itself, as the thing to compare with: one search with a queue and sets for
each way of each game, rewards and rules as in `hotloop.envs.snake`, episodes that end are begun anew in the same step.
"""

from __future__ import annotations

from collections import deque

import torch

STEPS = ((0, -1), (1, 0), (0, 1), (-1, 0))
RIGHT = 1


class StudySnake:
    """N games on the CPU, relative actions, 10 features or 13 with the flood fill."""

    def __init__(self, num_envs: int = 256, board: int = 10, flood: bool = False, max_steps: int = 1000) -> None:
        self.num_envs, self.board, self.flood, self.max_steps = num_envs, board, flood, max_steps
        self.deltas = torch.tensor(STEPS)
        self.bodies = torch.zeros((num_envs, board * board, 2), dtype=torch.long)
        self.lengths = torch.zeros(num_envs, dtype=torch.long)
        self.headings = torch.zeros(num_envs, dtype=torch.long)
        self.foods = torch.zeros((num_envs, 2), dtype=torch.long)
        self.steps = torch.zeros(num_envs, dtype=torch.long)

    def reset(self, seed: int | None = None) -> torch.Tensor:
        """Begin all games; return features [N, F]."""
        if seed is not None:
            torch.manual_seed(seed)
        for i in range(self.num_envs):
            self._begin(i)
        return self._observe()

    def step(self, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Play one action in each game; return features, rewards, terminated, truncated."""
        turns = torch.tensor([0, -1, 1])[actions]
        self.headings = (self.headings + turns) % 4
        heads = self.bodies[:, 0]
        targets = heads + self.deltas[self.headings]
        terminated = self._outside(targets) | self._on_body(targets)
        eaten = ~terminated & (targets == self.foods).all(dim=1)
        before = (heads - self.foods).abs().sum(dim=1)
        after = (targets - self.foods).abs().sum(dim=1)
        rewards = -0.01 + 0.5 * (before - after) / self.board
        rewards[eaten] = 10.0
        rewards[terminated] = -10.0
        for i in range(self.num_envs):
            if not terminated[i]:
                self._advance(i, targets[i].clone(), bool(eaten[i]))
        self.steps += 1
        truncated = (self.steps >= self.max_steps) & ~terminated
        rewards[truncated] -= 5.0
        for i in torch.nonzero(terminated | truncated).flatten():
            self._begin(int(i.item()))
        return self._observe(), rewards, terminated, truncated

    def _begin(self, i: int) -> None:
        centre = self.board // 2
        for k in range(3):
            self.bodies[i, k] = torch.tensor([centre - k, centre])
        self.lengths[i], self.headings[i], self.steps[i] = 3, RIGHT, 0
        self._place_food(i)

    def _place_food(self, i: int) -> None:
        body = self.bodies[i, : self.lengths[i]]
        for _ in range(100):
            self.foods[i] = torch.randint(0, self.board, (2,))
            if not (body == self.foods[i]).all(dim=1).any():
                break

    def _advance(self, i: int, target: torch.Tensor, eaten: bool) -> None:
        length = int(self.lengths[i].item())
        kept = length if eaten else length - 1
        self.bodies[i, 1 : kept + 1] = self.bodies[i, :kept].clone()
        self.bodies[i, 0] = target
        if eaten:
            self.lengths[i] += 1
            self._place_food(i)

    def _outside(self, cells: torch.Tensor) -> torch.Tensor:
        return ((cells < 0) | (cells >= self.board)).any(dim=1)

    def _on_body(self, cells: torch.Tensor) -> torch.Tensor:
        hits = torch.zeros(self.num_envs, dtype=torch.bool)
        for i in range(self.num_envs):
            body = self.bodies[i, : self.lengths[i]]
            hits[i] = (body == cells[i]).all(dim=1).any()
        return hits

    def _observe(self) -> torch.Tensor:
        seen = torch.zeros((self.num_envs, 13 if self.flood else 10))
        heads = self.bodies[:, 0]
        for column, turn in enumerate((0, -1, 1)):
            cells = heads + self.deltas[(self.headings + turn) % 4]
            seen[:, column] = (self._outside(cells) | self._on_body(cells)).float()
        seen[:, 3] = (self.foods[:, 1] < heads[:, 1]).float()
        seen[:, 4] = (self.foods[:, 0] > heads[:, 0]).float()
        seen[:, 5] = (self.foods[:, 1] > heads[:, 1]).float()
        seen[:, 6] = (self.foods[:, 0] < heads[:, 0]).float()
        for way in range(3):
            seen[:, 7 + way] = (self.headings == way).float()
        if self.flood:
            for column, turn in ((10, 0), (11, 1), (12, -1)):
                cells = heads + self.deltas[(self.headings + turn) % 4]
                seen[:, column] = self._room(cells, ~self._outside(cells) & ~self._on_body(cells))
        return seen

    def _room(self, starts: torch.Tensor, safe: torch.Tensor) -> torch.Tensor:
        """Reachable cells over free cells, by a breadth-first search in each game."""
        room = torch.zeros(self.num_envs)
        for i in range(self.num_envs):
            if safe[i]:
                body = {tuple(cell) for cell in self.bodies[i, : self.lengths[i]].tolist()}
                found = self._search(tuple(starts[i].tolist()), body)
                room[i] = found / (self.board * self.board - len(body))
        return room

    def _search(self, start: tuple[int, ...], body: set[tuple[int, ...]]) -> int:
        visited, queue = {start}, deque([start])
        while queue:
            x, y = queue.popleft()
            for dx, dy in STEPS:
                cell = (x + dx, y + dy)
                inside = 0 <= cell[0] < self.board and 0 <= cell[1] < self.board
                if inside and cell not in visited and cell not in body:
                    visited.add(cell)
                    queue.append(cell)
        return len(visited)
