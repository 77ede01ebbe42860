"""Deep Q-learning for Snake.  Board is drawn into a small frame so that a game can be watched."""
import argparse
import json
import random
import time
from collections import deque, namedtuple
from enum import Enum

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim

torch.set_num_threads(1)

BLOCK = 20
SPEED = 320
MAX_MEMORY = 50_000
BATCH_SIZE = 256
LR = 0.001

Point = namedtuple("Point", "x, y")


class Direction(Enum):
    RIGHT = 1
    LEFT = 2
    UP = 3
    DOWN = 4


CLOCKWISE = [Direction.RIGHT, Direction.DOWN, Direction.LEFT, Direction.UP]


class Clock:
    """Stand-in for pygame.time.Clock (no display on the server)."""

    def __init__(self):
        self._last = time.monotonic()

    def tick(self, framerate=0):
        now = time.monotonic()
        if framerate:
            rest = self._last + 1.0 / framerate - now
            if rest > 0:
                time.sleep(rest)
        now = time.monotonic()
        passed, self._last = now - self._last, now
        return passed


class SnakeGameAI:
    def __init__(self, w=320, h=240):
        self.w, self.h = w, h
        self.display = np.zeros((h // BLOCK, w // BLOCK, 3), np.uint8)
        self.clock = Clock()
        self.reset()

    def reset(self):
        self.direction = Direction.RIGHT
        self.head = Point(self.w // 2, self.h // 2 // BLOCK * BLOCK)
        self.snake = [self.head,
                      Point(self.head.x - BLOCK, self.head.y),
                      Point(self.head.x - 2 * BLOCK, self.head.y)]
        self.score = 0
        self.food = None
        self._place_food()
        self.frame_iteration = 0

    def _place_food(self):
        x = random.randrange(self.w // BLOCK) * BLOCK
        y = random.randrange(self.h // BLOCK) * BLOCK
        self.food = Point(x, y)
        if self.food in self.snake:
            self._place_food()

    def play_step(self, action):
        self.frame_iteration += 1
        self._move(action)
        self.snake.insert(0, self.head)
        reward, game_over = 0, False
        if self.is_collision() or self.frame_iteration > 60 * len(self.snake):
            return -10, True, self.score
        if self.head == self.food:
            self.score += 1
            reward = 10
            self._place_food()
        else:
            self.snake.pop()
        self._update_ui()
        return reward, game_over, self.score

    def is_collision(self, pt=None):
        pt = pt or self.head
        if pt.x > self.w - BLOCK or pt.x < 0 or pt.y > self.h - BLOCK or pt.y < 0:
            return True
        return pt in self.snake[1:]

    def _update_ui(self):
        self.display.fill(0)
        for pt in self.snake:
            self.display[pt.y // BLOCK, pt.x // BLOCK] = (0, 100, 255)
        self.display[self.food.y // BLOCK, self.food.x // BLOCK] = (200, 0, 0)
        self.clock.tick()

    def _move(self, action):
        idx = CLOCKWISE.index(self.direction)
        if action == 1:
            idx = (idx + 1) % 4
        elif action == 2:
            idx = (idx - 1) % 4
        self.direction = CLOCKWISE[idx]
        self.head = neighbour(self.head, self.direction)


def neighbour(pt, d):
    if d == Direction.RIGHT:
        return Point(pt.x + BLOCK, pt.y)
    if d == Direction.LEFT:
        return Point(pt.x - BLOCK, pt.y)
    if d == Direction.DOWN:
        return Point(pt.x, pt.y + BLOCK)
    return Point(pt.x, pt.y - BLOCK)


class QTrainer:
    def __init__(self, model, lr, gamma):
        self.model, self.gamma = model, gamma
        self.optimizer = optim.Adam(model.parameters(), lr=lr)
        self.criterion = nn.MSELoss()

    def train_step(self, state, action, reward, next_state, done):
        state = torch.as_tensor(np.asarray(state, dtype=np.float32))
        next_state = torch.as_tensor(np.asarray(next_state, dtype=np.float32))
        action = torch.as_tensor(action)
        reward = torch.as_tensor(reward, dtype=torch.float32)
        alive = 1.0 - torch.as_tensor(done, dtype=torch.float32)
        with torch.no_grad():
            target = reward + self.gamma * alive * self.model(next_state).max(1).values
        pred = self.model(state).gather(1, action[:, None]).squeeze(1)
        loss = self.criterion(pred, target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


class Agent:
    def __init__(self):
        self.n_games = 0
        self.memory = deque(maxlen=MAX_MEMORY)
        self.model = nn.Sequential(nn.Linear(11, 256), nn.ReLU(), nn.Linear(256, 3))
        self.trainer = QTrainer(self.model, LR, 0.9)

    def get_state(self, game):
        d = CLOCKWISE.index(game.direction)
        ahead = [CLOCKWISE[d], CLOCKWISE[(d + 1) % 4], CLOCKWISE[(d - 1) % 4]]
        danger = [game.is_collision(neighbour(game.head, a)) for a in ahead]
        heading = [d == i for i in range(4)]
        food = [game.food.x < game.head.x, game.food.x > game.head.x,
                game.food.y < game.head.y, game.food.y > game.head.y]
        return np.array(danger + heading + food, dtype=np.float32)

    def get_action(self, state):
        if random.randint(0, 200) < 80 - self.n_games:
            return random.randrange(3)
        with torch.no_grad():
            return int(self.model(torch.from_numpy(state)).argmax())

    def train_long_memory(self):
        k = min(BATCH_SIZE, len(self.memory))
        s, a, r, n, d = zip(*random.sample(self.memory, k))
        self.trainer.train_step(s, a, r, n, d)

    def train_short_memory(self, s, a, r, n, d):
        self.trainer.train_step([s], [a], [r], [n], [d])


def train(seconds):
    agent, game = Agent(), SnakeGameAI()
    record = steps = mark_steps = 0
    start = time.perf_counter()
    mark = None
    while True:
        now = time.perf_counter()
        if mark is None and now - start >= 1.0:
            mark, mark_steps = now, steps
        if now - start >= seconds:
            break
        old = agent.get_state(game)
        action = agent.get_action(old)
        reward, done, score = game.play_step(action)
        new = agent.get_state(game)
        agent.train_short_memory(old, action, reward, new, done)
        agent.memory.append((old, action, reward, new, done))
        steps += 1
        if done:
            game.reset()
            agent.n_games += 1
            agent.train_long_memory()
            record = max(record, score)
            if agent.n_games % 50 == 0:
                print("game", agent.n_games, "score", score, "record", record)
    took = now - mark
    n = steps - mark_steps
    print(json.dumps({"env_steps": n, "seconds": round(took, 3), "env_steps_per_s": round(n / took, 2)}))


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=8.0)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    train(args.seconds)
