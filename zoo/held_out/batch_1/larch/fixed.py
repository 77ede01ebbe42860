"""Double DQN from pixels: catch falling fruit with a basket."""
import argparse
import collections
import json
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image

torch.set_num_threads(1)
Transition = collections.namedtuple("Transition", "frames action reward next_frames done")


class FruitGame:
    """80x80 RGB screen, three moves, an episode is ten pieces of fruit."""

    SIZE = 80

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.sky = np.zeros((self.SIZE, self.SIZE, 3), np.uint8)
        self.sky[:, :] = (120, 170, 220)
        self.sky[72:] = (60, 120, 40)

    def _drop(self):
        self.fx, self.fy = self.rng.randrange(4, self.SIZE - 4), 4
        self.drift = self.rng.choice((-2, -1, 0, 1, 2))

    def reset(self):
        self.bx, self.left = self.SIZE // 2, 10
        self._drop()
        return self.screen()

    def screen(self):
        img = self.sky.copy()
        img[self.fy - 4:self.fy + 4, self.fx - 4:self.fx + 4] = (230, 40, 30)
        img[66:72, self.bx - 8:self.bx + 8] = (90, 60, 20)
        return img

    def step(self, a):
        self.bx = min(self.SIZE - 8, max(8, self.bx + 5 * (a - 1)))
        self.fx += self.drift
        if self.fx < 4 or self.fx > self.SIZE - 4:
            self.drift = -self.drift
            self.fx = min(self.SIZE - 4, max(4, self.fx))
        self.fy += 4
        reward, done = 0.0, False
        if self.fy >= 64:
            reward = 1.0 if abs(self.fx - self.bx) < 10 else -1.0
            self.left -= 1
            done = self.left == 0
            self._drop()
        return self.screen(), reward, done


def to_input(frame):
    """RGB screen -> 40x40 grey image."""
    return np.asarray(Image.fromarray(frame).convert("L").resize((40, 40), Image.BILINEAR))


def stack(frames):
    return np.stack(frames)


class FrameStack:
    def __init__(self, game, depth=2):
        self.game, self.frames = game, collections.deque(maxlen=depth)

    def reset(self):
        f = to_input(self.game.reset())
        self.frames.extend([f] * self.frames.maxlen)
        return tuple(self.frames)

    def step(self, a):
        f, r, done = self.game.step(a)
        self.frames.append(to_input(f))
        return tuple(self.frames), r, done


class ReplayMemory:
    def __init__(self, capacity):
        self.capacity, self.memory, self.position = capacity, [], 0

    def push(self, *args):
        if len(self.memory) < self.capacity:
            self.memory.append(None)
        self.memory[self.position] = Transition(*args)
        self.position = (self.position + 1) % self.capacity

    def sample(self, n):
        batch = Transition(*zip(*random.sample(self.memory, n)))
        return (torch.from_numpy(np.stack([stack(f) for f in batch.frames])),
                torch.tensor(batch.action),
                torch.tensor(batch.reward),
                torch.from_numpy(np.stack([stack(f) for f in batch.next_frames])),
                torch.tensor(batch.done, dtype=torch.float32))


class ConvQ(nn.Module):
    def __init__(self, depth=2, n_actions=3):
        super().__init__()
        self.conv1 = nn.Conv2d(depth, 16, 6, stride=4)
        self.conv2 = nn.Conv2d(16, 32, 3, stride=2)
        self.fc = nn.Linear(32 * 16, 128)
        self.out = nn.Linear(128, n_actions)

    def forward(self, x):
        x = x.float() / 255
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        return self.out(F.relu(self.fc(x.flatten(1))))


def optimise(memory, net, target, opt, gamma=0.97, n=32):
    x, a, r, x2, done = memory.sample(n)
    with torch.no_grad():
        pick = net(x2).argmax(1, keepdim=True)
        y = r + gamma * (1 - done) * target(x2).gather(1, pick).squeeze(1)
    q = net(x).gather(1, a.unsqueeze(1)).squeeze(1)
    loss = F.smooth_l1_loss(q, y)
    opt.zero_grad()
    loss.backward()
    opt.step()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--seconds", type=float, default=60)
    cli.add_argument("--seed", type=int, default=0)
    args = cli.parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)

    env = FrameStack(FruitGame(args.seed))
    net, target = ConvQ(), ConvQ()
    target.load_state_dict(net.state_dict())
    opt = torch.optim.Adam(net.parameters(), lr=5e-4)
    memory = ReplayMemory(8000)

    frames, step, updates, caught = env.reset(), 0, 0, 0.0
    begin = count_from = None
    deadline = time.perf_counter() + args.seconds
    while time.perf_counter() < deadline:
        if random.random() < max(0.05, 1 - step / 3000):
            a = random.randrange(3)
        else:
            with torch.no_grad():
                a = net(torch.from_numpy(stack(frames)).unsqueeze(0)).argmax(1).item()
        nxt, r, done = env.step(a)
        memory.push(frames, a, r, nxt, done)
        caught += r
        frames = env.reset() if done else nxt
        step += 1
        if len(memory.memory) >= 300 and step % 2 == 0:
            if begin is None:
                begin, count_from = time.perf_counter(), step
            optimise(memory, net, target, opt)
            updates += 1
            if updates % 300 == 0:
                target.load_state_dict(net.state_dict())
    dt, n = time.perf_counter() - begin, step - count_from
    print(json.dumps({"env_steps": n, "seconds": round(dt, 3), "env_steps_per_s": round(n / dt, 2),
                      "updates": updates, "score": caught}))


if __name__ == "__main__":
    main()
