"""Q-learning on Snake: the agent sees how much room there is straight on, to the right and to the left.

The body is a list of parts, and all of them are looked at for each direction.
"""

import random

from agent import QTable
from meter import Meter, parse_args

SIZE = 40
MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))
GROWTH = 20
MAX_STEPS = 2_000
EXPLORING_STEPS = 40_000
WARMUP = 500


class Snake:
    """One game on a SIZE x SIZE board; actions are straight, right, left."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def reset(self):
        middle = SIZE // 2
        self.body = [(middle, middle - i) for i in range(3)]
        self.heading = 0
        self.age = 0
        self.growing = 0
        self.food = self.free_cell()
        return self.look()

    def free_cell(self):
        while True:
            cell = self.rng.randrange(SIZE), self.rng.randrange(SIZE)
            if not self.on_body(cell):
                return cell

    def on_body(self, cell):
        return any(part == cell for part in self.body)

    def room(self, cell, heading):
        """Free cells from a cell on, up to the wall or the nearest part of the body."""
        (row, column), (down, right) = cell, MOVES[heading]
        free = (SIZE - 1 - column, SIZE - 1 - row, column, row)[heading]
        for part in self.body:
            ahead = (part[0] - row) * down + (part[1] - column) * right
            beside = (part[0] - row) * right - (part[1] - column) * down
            if beside == 0 and 0 < ahead <= free:
                free = ahead - 1
        return free

    def way(self, cell, heading, moves):
        """0 if the next cell is taken, else how much room there is after some moves, at best."""
        room = self.room(cell, heading)
        if room == 0 or moves == 0:
            return room
        ahead = cell[0] + MOVES[heading][0], cell[1] + MOVES[heading][1]
        return 1 + max(self.way(ahead, (heading + turn) % 4, moves - 1) for turn in (0, 1, 3))

    def look(self):
        """The ways straight on, to the right and to the left, and where the food is."""
        ways = [min(self.way(self.body[0], (self.heading + turn) % 4, 2), 6) // 2 for turn in (0, 1, 3)]
        (row, column), (down, right) = self.body[0], MOVES[self.heading]
        away = self.food[0] - row, self.food[1] - column
        ahead = away[0] * down + away[1] * right
        beside = away[0] * right - away[1] * down
        return (*ways, (ahead > 0) - (ahead < 0), (beside > 0) - (beside < 0))

    def distance(self, cell):
        return abs(self.food[0] - cell[0]) + abs(self.food[1] - cell[1])

    def step(self, action):
        self.heading = (self.heading + (0, 1, 3)[action]) % 4
        down, right = MOVES[self.heading]
        head = self.body[0][0] + down, self.body[0][1] + right
        self.age += 1
        dead = not (0 <= head[0] < SIZE and 0 <= head[1] < SIZE) or self.on_body(head)
        reward = -10.0 if dead else self.move(head)
        return self.look(), reward, dead, self.age >= MAX_STEPS, {}

    def move(self, head):
        """Go to a free cell, eat what is there, and return the reward."""
        closer = self.distance(head) < self.distance(self.body[0])
        eaten = head == self.food
        self.body.insert(0, head)
        if eaten:
            self.growing += GROWTH
            self.food = self.free_cell()
        if self.growing:
            self.growing -= 1
        else:
            self.body.pop()
        return 10.0 if eaten else 0.1 if closer else -0.15


def main():
    args = parse_args()
    env, agent = Snake(args.seed), QTable(args.seed, EXPLORING_STEPS)
    meter = Meter(args, WARMUP)
    episodes, longest = 0, 0
    state = env.reset()
    while meter.more(1):
        action = agent.act(state)
        next_state, reward, terminated, truncated, _ = env.step(action)
        agent.learn(state, action, reward, next_state, terminated)
        state = next_state
        if terminated or truncated:
            episodes, longest = episodes + 1, max(longest, len(env.body))
            state = env.reset()
    print(f"{episodes} episodes, longest snake {longest}")
    meter.report()


if __name__ == "__main__":
    main()
