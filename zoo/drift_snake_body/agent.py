"""Q-learning with a table: one row of action values for each state that was met."""

import random

ACTIONS = 3


class QTable:
    """Epsilon falls slowly, so that the games grow longer all through the run."""

    def __init__(self, seed, exploring_steps):
        self.values = {}
        self.rng = random.Random(seed)
        self.exploring_steps = exploring_steps
        self.steps = 0

    def row(self, state):
        return self.values.setdefault(state, [0.0] * ACTIONS)

    def act(self, state):
        self.steps += 1
        epsilon = max(0.002, 0.3 * (1 - self.steps / self.exploring_steps))
        if self.rng.random() < epsilon:
            return self.rng.randrange(ACTIONS)
        row = self.row(state)
        return row.index(max(row))

    def learn(self, state, action, reward, next_state, terminated):
        future = 0.0 if terminated else 0.9 * max(self.row(next_state))
        row = self.row(state)
        row[action] += 0.2 * (reward + future - row[action])
