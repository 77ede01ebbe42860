"""Dyna-Q in a slippery maze: a dictionary of NumPy rows, and some planning after each step."""

import random
from collections import defaultdict

import numpy as np
from progress import tick

MAZE = [
    "#########",
    "#S..#...#",
    "#.#.#.#.#",
    "#.#...#.#",
    "#.#####.#",
    "#......G#",
    "#########",
]
MOVES = [(-1, 0), (0, 1), (1, 0), (0, -1)]
ALPHA, GAMMA, EPSILON, SLIP, PLANNING = 0.1, 0.97, 0.2, 0.1, 5


class Maze:
    def __init__(self, rows):
        self.rows = rows
        cells = [(r, c, cell) for r, row in enumerate(rows) for c, cell in enumerate(row)]
        self.start = next((r, c) for r, c, cell in cells if cell == "S")
        self.goal = next((r, c) for r, c, cell in cells if cell == "G")

    def reset(self):
        self.position, self.time = self.start, 0
        return self.position

    def step(self, action):
        self.time += 1
        if random.random() < SLIP:
            action = random.randrange(4)
        row, column = self.position[0] + MOVES[action][0], self.position[1] + MOVES[action][1]
        if self.rows[row][column] != "#":
            self.position = (row, column)
        done = self.position == self.goal
        return self.position, 1.0 if done else -0.01, done or self.time >= 200


def choose(values, rng):
    if random.random() < EPSILON:
        return random.randrange(4)
    best = np.flatnonzero(values == values.max())
    return int(rng.choice(best))


def learn(q, state, action, reward, following, done):
    target = reward + (0.0 if done else GAMMA * q[following].max())
    q[state][action] += ALPHA * (target - q[state][action])


def main():
    random.seed(3)
    rng = np.random.default_rng(3)
    maze, q, model = Maze(MAZE), defaultdict(lambda: np.zeros(4)), []
    while True:
        state, done = maze.reset(), False
        while not done:
            action = choose(q[state], rng)
            following, reward, done = maze.step(action)
            learn(q, state, action, reward, following, done)
            model = [*model[-20:], (state, action, reward, following, done)]
            for remembered in random.choices(model, k=PLANNING):
                learn(q, *remembered)
            state = following
            tick()


if __name__ == "__main__":
    main()
