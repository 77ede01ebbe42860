"""DQN on byte frames of eight games at once, written with care: nothing here should be reported.

Frames are kept once, as bytes, in a ring for each game; stacks are gathered by index and made float in the network.
"""

import gymnasium as gym
import numpy as np
import torch
from meter import Meter, parse_args
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
torch.set_flush_denormal(True)

NUM_ENVS, SIZE, STACK, BATCH, SLOTS = 8, 42, 4, 32, 2_000
WARMUP = 60 * NUM_ENVS


class CatchEnv(gym.vector.VectorEnv):
    """Catch the falling ball with a paddle; all games are drawn at once, [N, SIZE, SIZE] bytes."""

    def __init__(self, num_envs):
        self.num_envs = num_envs
        self.single_observation_space = gym.spaces.Box(0, 255, (SIZE, SIZE), np.uint8)
        self.single_action_space = gym.spaces.Discrete(3)
        self.rows = np.arange(num_envs)

    def reset(self, *, seed=None, options=None):
        self.random = np.random.default_rng(seed)
        self.paddle = np.full(self.num_envs, SIZE // 2)
        self.ball_y = self.random.integers(0, SIZE // 2, self.num_envs)
        self.ball_x = self.random.integers(1, SIZE - 1, self.num_envs)
        return self._picture(), {}

    def _picture(self):
        frame = np.zeros((self.num_envs, SIZE, SIZE), np.uint8)
        frame[self.rows, self.ball_y, self.ball_x] = 255
        for shift in (-2, -1, 0, 1, 2):
            frame[self.rows, SIZE - 1, np.clip(self.paddle + shift, 0, SIZE - 1)] = 128
        return frame

    def step(self, actions):
        self.paddle = np.clip(self.paddle + actions - 1, 2, SIZE - 3)
        self.ball_y += 1
        done = self.ball_y >= SIZE - 1
        reward = np.where(done, np.where(np.abs(self.ball_x - self.paddle) <= 2, 1.0, -1.0), 0.0)
        self.ball_y[done] = 0
        self.ball_x[done] = self.random.integers(1, SIZE - 1, done.sum())
        return self._picture(), reward, done, np.zeros_like(done), {}


class FrameRing:
    """Frames of all games, [SLOTS, N]; a stack is STACK frames before an index, a next stack one later."""

    def __init__(self):
        self.frames = torch.zeros(SLOTS, NUM_ENVS, SIZE, SIZE, dtype=torch.uint8)
        self.actions = torch.zeros(SLOTS, NUM_ENVS, dtype=torch.long)
        self.rewards, self.done = torch.zeros(SLOTS, NUM_ENVS), torch.zeros(SLOTS, NUM_ENVS)
        self.at, self.size = 0, 0
        self.window = torch.arange(-STACK + 1, 2)

    def push(self, frames, actions, rewards, done):
        self.frames[self.at], self.actions[self.at] = frames, actions
        self.rewards[self.at], self.done[self.at] = rewards, done
        self.at = (self.at + 1) % SLOTS
        self.size = min(self.size + 1, SLOTS)

    def sample(self, batch_size):
        age = torch.randint(2, self.size - STACK, (batch_size,))
        slot, game = (self.at - age) % SLOTS, torch.randint(NUM_ENVS, (batch_size,))
        stacks = self.frames[(slot[:, None] + self.window) % SLOTS, game[:, None]]
        return stacks, self.actions[slot, game], self.rewards[slot, game], self.done[slot, game]


class QNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(STACK, 16, 6, 3), nn.ReLU(), nn.Conv2d(16, 32, 4, 2), nn.ReLU(),
            nn.Flatten(), nn.Linear(32 * 5 * 5, 128), nn.ReLU(), nn.Linear(128, 3),
        )  # fmt: skip

    def forward(self, frames):
        return self.layers(frames.float().mul_(1 / 255))


class DQN:
    def __init__(self):
        self.q, self.target = QNetwork(), QNetwork()
        self.target.load_state_dict(self.q.state_dict())
        self.optimizer = torch.optim.Adam(self.q.parameters(), lr=3e-4, fused=True)
        self.updates = 0

    @torch.no_grad()
    def act(self, stacks, epsilon):
        greedy = self.q(stacks).argmax(1)
        return torch.where(torch.rand(NUM_ENVS) < epsilon, torch.randint(3, (NUM_ENVS,)), greedy)

    def update(self, stacks, actions, rewards, done):
        with torch.no_grad():
            target = rewards + 0.97 * (1 - done) * self.target(stacks[:, 1:]).amax(1)
        chosen = self.q(stacks[:, :-1]).gather(1, actions[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(chosen, target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.updates += 1
        if self.updates % 250 == 0:
            self.target.load_state_dict(self.q.state_dict())


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    env, agent, ring = CatchEnv(NUM_ENVS), DQN(), FrameRing()
    meter = Meter(args, WARMUP)
    frames = torch.from_numpy(env.reset(seed=args.seed)[0])
    stacks = frames[:, None].repeat(1, STACK, 1, 1)
    while meter.more(NUM_ENVS):
        actions = agent.act(stacks, epsilon=0.1)
        next_frames, rewards, done, _, _ = env.step(actions.numpy())
        ring.push(frames, actions, torch.from_numpy(rewards), torch.from_numpy(done))
        frames = torch.from_numpy(next_frames)
        stacks[:, :-1] = stacks[:, 1:].clone()
        stacks[:, -1] = frames
        if ring.size >= 40:
            agent.update(*ring.sample(BATCH))
    meter.report()


if __name__ == "__main__":
    main()
