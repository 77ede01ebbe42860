"""PPO on Ricochet Robots from pictures.

The picture of the board is drawn with PIL at 512 x 512 on every step and shrunk to 128 x 128.
"""

import math

import gymnasium as gym
import numpy as np
import torch
from board import SIZE, Board
from meter import Meter, parse_args
from PIL import Image, ImageDraw
from ppo import ROLLOUT, Policy, Rollout, act, update

torch.set_num_threads(1)

WARMUP = 2 * ROLLOUT
CELL = 32
COLORS = ((220, 40, 40), (40, 90, 220), (40, 170, 60), (230, 190, 40))


class RicochetEnv(gym.Env):
    """Actions robot * 4 + direction; -0.01 a step, +1 solved, at most 20 steps."""

    def __init__(self):
        self.render_mode = "rgb_array"
        self.action_space = gym.spaces.Discrete(16)
        self.observation_space = gym.spaces.Box(0, 255, (128, 128, 3), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.board = Board(self.np_random)
        self.moves = 0
        return self._get_rgb_observation(), {}

    def step(self, action):
        self.board.slide(int(action) // 4, int(action) % 4)
        self.moves += 1
        solved = self.board.solved()
        reward = 1.0 if solved else -0.01
        return self._get_rgb_observation(), reward, solved, self.moves >= 20, {}

    def _get_rgb_observation(self):
        image = Image.fromarray(self.render())
        return np.array(image.resize((128, 128), Image.Resampling.LANCZOS))

    def render(self):
        image = Image.new("RGB", (SIZE * CELL, SIZE * CELL), (245, 240, 225))
        draw = ImageDraw.Draw(image)
        self._draw_grid(draw)
        self._draw_walls(draw)
        self._draw_target(draw)
        self._draw_robots(draw)
        return np.asarray(image)

    def _draw_grid(self, draw):
        for i in range(SIZE + 1):
            draw.line((i * CELL, 0, i * CELL, SIZE * CELL), fill=(190, 190, 180))
            draw.line((0, i * CELL, SIZE * CELL, i * CELL), fill=(190, 190, 180))

    def _draw_walls(self, draw):
        for y in range(SIZE):
            for x in range(SIZE):
                left, top, right, bottom = x * CELL, y * CELL, (x + 1) * CELL, (y + 1) * CELL
                if self.board.below[y, x]:
                    draw.line((left, bottom, right, bottom), fill=(30, 30, 30), width=4)
                if self.board.right[y, x]:
                    draw.line((right, top, right, bottom), fill=(30, 30, 30), width=4)

    def _draw_target(self, draw):
        y, x = self.board.target
        cy, cx = (y + 0.5) * CELL, (x + 0.5) * CELL
        points = []
        for i in range(10):
            radius = 13 if i % 2 == 0 else 5
            angle = math.pi * i / 5 - math.pi / 2
            points.append((cx + radius * math.cos(angle), cy + radius * math.sin(angle)))
        draw.polygon(points, fill=COLORS[0])

    def _draw_robots(self, draw):
        for color, (y, x) in zip(COLORS, self.board.robots, strict=True):
            box = (x * CELL + 4, y * CELL + 4, (x + 1) * CELL - 4, (y + 1) * CELL - 4)
            draw.ellipse(box, fill=color, outline=(20, 20, 20))


def to_tensor(observation):
    """Picture [128, 128, 3] as floats in 0..1, channels first."""
    return torch.from_numpy(observation).permute(2, 0, 1) / 255.0


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    env = RicochetEnv()
    policy = Policy(channels=3, actions=16)
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
    rollout = Rollout(channels=3)
    meter = Meter(args, WARMUP)
    observation, _ = env.reset(seed=args.seed)
    while meter.more(ROLLOUT):
        for t in range(ROLLOUT):
            action = act(policy, rollout, t, to_tensor(observation))
            observation, reward, terminated, truncated, _ = env.step(action)
            rollout.rewards[t] = reward
            rollout.dones[t] = float(terminated or truncated)
            if terminated or truncated:
                observation, _ = env.reset()
        with torch.no_grad():
            rollout.values[ROLLOUT] = policy(to_tensor(observation)[None])[1][0]
        update(policy, optimizer, rollout)
    meter.report()


if __name__ == "__main__":
    main()
