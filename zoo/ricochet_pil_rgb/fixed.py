"""PPO on Ricochet Robots from pictures.

The picture is drawn at 128 x 128 with numpy: the board once for each puzzle, only the robots on every step.
"""

import gymnasium as gym
import numpy as np
import torch
from board import SIZE, Board
from meter import Meter, parse_args
from ppo import ROLLOUT, Policy, Rollout, act, update

torch.set_num_threads(1)

WARMUP = 2 * ROLLOUT
CELL = 8
COLORS = ((220, 40, 40), (40, 90, 220), (40, 170, 60), (230, 190, 40))
DISTANCE = np.hypot(*(np.mgrid[:CELL, :CELL] - (CELL - 1) / 2))
DISC = DISTANCE < CELL / 2 - 0.5
STAR = np.abs(np.subtract(*np.mgrid[:CELL, :CELL])) < 2  # a diagonal stroke
STAR = (STAR | STAR[::-1]) & (DISTANCE < CELL / 2)


class RicochetEnv(gym.Env):
    """Actions robot * 4 + direction; -0.01 a step, +1 solved, at most 20 steps."""

    def __init__(self):
        self.render_mode = "rgb_array"
        self.action_space = gym.spaces.Discrete(16)
        self.observation_space = gym.spaces.Box(0, 255, (128, 128, 3), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.board = Board(self.np_random)
        self.background = draw_board(self.board)
        self.moves = 0
        return self.render(), {}

    def step(self, action):
        self.board.slide(int(action) // 4, int(action) % 4)
        self.moves += 1
        solved = self.board.solved()
        reward = 1.0 if solved else -0.01
        return self.render(), reward, solved, self.moves >= 20, {}

    def render(self):
        image = self.background.copy()
        for color, (y, x) in zip(COLORS, self.board.robots, strict=True):
            image[y * CELL : (y + 1) * CELL, x * CELL : (x + 1) * CELL][DISC] = color
        return image


def draw_board(board):
    """Grid, walls and target, [128, 128, 3] uint8."""
    image = np.full((SIZE * CELL, SIZE * CELL, 3), (245, 240, 225), np.uint8)
    image[::CELL] = image[:, ::CELL] = (190, 190, 180)
    for y, x in np.argwhere(board.below):
        image[(y + 1) * CELL - 1, x * CELL : (x + 1) * CELL] = (30, 30, 30)
    for y, x in np.argwhere(board.right):
        image[y * CELL : (y + 1) * CELL, (x + 1) * CELL - 1] = (30, 30, 30)
    y, x = board.target
    image[y * CELL : (y + 1) * CELL, x * CELL : (x + 1) * CELL][STAR] = COLORS[0]
    return image


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
