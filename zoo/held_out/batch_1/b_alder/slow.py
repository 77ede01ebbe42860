"""Snake with a small Q-network.  The game follows the usual 'teach an AI to play snake' layout."""
import argparse
import json
import os
import random
import tempfile
import time
from collections import deque, namedtuple
from enum import Enum

import numpy as np
import torch
import torch.nn as nn
from PIL import Image, ImageDraw, ImageFont

Point = namedtuple("Point", "x, y")


class Direction(Enum):
    RIGHT = 0
    DOWN = 1
    LEFT = 2
    UP = 3


CLOCKWISE = [Direction.RIGHT, Direction.DOWN, Direction.LEFT, Direction.UP]
MOVES = {Direction.RIGHT: (1, 0), Direction.DOWN: (0, 1), Direction.LEFT: (-1, 0), Direction.UP: (0, -1)}

WHITE, RED, BLUE1, BLUE2, BLACK = (255, 255, 255), (200, 0, 0), (0, 0, 255), (0, 100, 255), (0, 0, 0)
BLOCK_SIZE = 20


class SnakeGameAI:
    def __init__(self, cols=24, rows=18):
        self.cols = cols
        self.rows = rows
        self.display = Image.new("RGB", (cols * BLOCK_SIZE, rows * BLOCK_SIZE))
        self.pen = ImageDraw.Draw(self.display)
        self.font = ImageFont.load_default()
        self.reset()

    def reset(self):
        self.direction = Direction.RIGHT
        self.head = Point(self.cols // 2, self.rows // 2)
        self.snake = [self.head, Point(self.head.x - 1, self.head.y), Point(self.head.x - 2, self.head.y)]
        self.score = 0
        self.food = None
        self._place_food()
        self.frame_iteration = 0

    def _place_food(self):
        while True:
            self.food = Point(random.randrange(self.cols), random.randrange(self.rows))
            if self.food not in self.snake:
                return

    def play_step(self, action):
        self.frame_iteration += 1
        self._move(action)
        self.snake.insert(0, self.head)

        reward = 0.0
        game_over = False
        if self.is_collision() or self.frame_iteration > 60 * len(self.snake):
            game_over = True
            reward = -10.0
            return reward, game_over, self.score

        if self.head == self.food:
            self.score += 1
            reward = 10.0
            self._place_food()
        else:
            self.snake.pop()

        self._update_ui()
        return reward, game_over, self.score

    def is_collision(self, pt=None):
        if pt is None:
            pt = self.head
        if pt.x < 0 or pt.x >= self.cols or pt.y < 0 or pt.y >= self.rows:
            return True
        return pt in self.snake[1:]

    def _update_ui(self):
        w, h = self.display.size
        self.pen.rectangle((0, 0, w, h), fill=BLACK)
        for x in range(0, w, BLOCK_SIZE):
            self.pen.line((x, 0, x, h), fill=(25, 25, 25))
        for y in range(0, h, BLOCK_SIZE):
            self.pen.line((0, y, w, y), fill=(25, 25, 25))
        for pt in self.snake:
            px, py = pt.x * BLOCK_SIZE, pt.y * BLOCK_SIZE
            self.pen.rectangle((px, py, px + BLOCK_SIZE - 1, py + BLOCK_SIZE - 1), fill=BLUE1)
            self.pen.rectangle((px + 4, py + 4, px + 15, py + 15), fill=BLUE2)
        px, py = self.food.x * BLOCK_SIZE, self.food.y * BLOCK_SIZE
        self.pen.rectangle((px, py, px + BLOCK_SIZE - 1, py + BLOCK_SIZE - 1), fill=RED)
        self.pen.text((4, 4), "Score: %d" % self.score, fill=WHITE, font=self.font)

    def screenshot(self, path):
        self.display.save(path)

    def _move(self, action):
        idx = CLOCKWISE.index(self.direction)
        if action == 1:
            idx = (idx + 1) % 4
        elif action == 2:
            idx = (idx - 1) % 4
        self.direction = CLOCKWISE[idx]
        dx, dy = MOVES[self.direction]
        self.head = Point(self.head.x + dx, self.head.y + dy)


class LinearQNet(nn.Module):
    def __init__(self, n_in, n_hidden, n_out):
        super().__init__()
        self.linear1 = nn.Linear(n_in, n_hidden)
        self.linear2 = nn.Linear(n_hidden, n_out)

    def forward(self, x):
        return self.linear2(torch.relu(self.linear1(x)))


class Agent:
    CAPACITY = 50_000

    def __init__(self):
        self.n_games = 0
        self.gamma = 0.9
        self.model = LinearQNet(11, 128, 3)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.s = np.zeros((self.CAPACITY, 11), np.float32)
        self.s2 = np.zeros((self.CAPACITY, 11), np.float32)
        self.a = np.zeros(self.CAPACITY, np.int64)
        self.r = np.zeros(self.CAPACITY, np.float32)
        self.d = np.zeros(self.CAPACITY, np.float32)
        self.n = 0

    def get_state(self, game):
        i = CLOCKWISE.index(game.direction)
        danger = []
        for turn in (0, 1, -1):
            dx, dy = MOVES[CLOCKWISE[(i + turn) % 4]]
            danger.append(game.is_collision(Point(game.head.x + dx, game.head.y + dy)))
        return np.array(
            danger
            + [i == 2, i == 0, i == 3, i == 1]
            + [game.food.x < game.head.x, game.food.x > game.head.x, game.food.y < game.head.y, game.food.y > game.head.y],
            dtype=np.float32,
        )

    def get_action(self, state):
        epsilon = max(0.02, 0.4 - 0.004 * self.n_games)
        if random.random() < epsilon:
            return random.randrange(3)
        with torch.no_grad():
            return int(self.model(torch.from_numpy(state)).argmax())

    def remember(self, state, action, reward, next_state, done):
        k = self.n % self.CAPACITY
        self.s[k], self.a[k], self.r[k], self.s2[k], self.d[k] = state, action, reward, next_state, done
        self.n += 1

    def train_long_memory(self, batch_size=64):
        idx = np.random.randint(0, min(self.n, self.CAPACITY), batch_size)
        with torch.no_grad():
            best = self.model(torch.from_numpy(self.s2[idx])).max(1).values
            target = torch.from_numpy(self.r[idx]) + self.gamma * (1.0 - torch.from_numpy(self.d[idx])) * best
        q = self.model(torch.from_numpy(self.s[idx]))
        q = q.gather(1, torch.from_numpy(self.a[idx])[:, None]).squeeze(1)
        loss = nn.functional.mse_loss(q, target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def train():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)

    out_dir = tempfile.mkdtemp()
    agent = Agent()
    game = SnakeGameAI()
    scores = deque(maxlen=100)
    record = 0
    steps = 0
    mark = None
    began = time.perf_counter()
    state = agent.get_state(game)
    while True:
        action = agent.get_action(state)
        reward, done, score = game.play_step(action)
        next_state = agent.get_state(game)
        agent.remember(state, action, reward, next_state, done)
        state = next_state
        steps += 1
        if steps > 500 and steps % 4 == 0:
            agent.train_long_memory()

        if done:
            agent.n_games += 1
            scores.append(score)
            if score > record:
                record = score
            if agent.n_games % 100 == 0:
                game.screenshot(os.path.join(out_dir, "last_position.png"))
                print("Game", agent.n_games, "Mean score %.2f" % (sum(scores) / len(scores)), "Record", record)
            game.reset()
            state = agent.get_state(game)

        now = time.perf_counter()
        if mark is None and now - began > 1.0:
            mark = (now, steps)
        if now - began > args.seconds:
            break
    n, sec = steps - mark[1], now - mark[0]
    print(json.dumps({"env_steps": n, "seconds": round(sec, 3), "env_steps_per_s": round(n / sec, 1)}))


if __name__ == "__main__":
    train()
