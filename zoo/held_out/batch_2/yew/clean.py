"""Double DQN from pixels: a small 'catch the falling fruit' game, 40x40 grey frames."""
import argparse
import json
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SIDE, STACK = 40, 2


class FruitGame:
    actions = 3

    def __init__(self, seed):
        self.rnd = random.Random(seed)
        self.screen = np.zeros((SIDE, SIDE), np.uint8)

    def reset(self):
        self.basket = SIDE // 2
        self.lives = 3
        self._drop()
        return self._draw()

    def _drop(self):
        self.fx, self.fy = self.rnd.randrange(2, SIDE - 2), 0
        self.drift = self.rnd.choice((-1, 0, 1))

    def _draw(self):
        self.screen.fill(0)
        self.screen[SIDE - 3:SIDE - 1, max(0, self.basket - 4):self.basket + 5] = 160
        self.screen[self.fy:self.fy + 3, max(0, self.fx - 1):self.fx + 2] = 255
        return self.screen

    def step(self, action):
        self.basket = min(SIDE - 3, max(2, self.basket + 2 * (action - 1)))
        self.fy += 2
        self.fx = min(SIDE - 2, max(1, self.fx + self.drift))
        reward, done = 0.0, False
        if self.fy >= SIDE - 4:
            if abs(self.fx - self.basket) <= 4:
                reward = 1.0
            else:
                reward = -1.0
                self.lives -= 1
                done = self.lives == 0
            self._drop()
        return self._draw(), reward, done


class FrameReplay:
    """Single uint8 frames in a ring; stacks are put together when sampling."""

    def __init__(self, capacity, seed):
        self.frames = np.zeros((capacity, SIDE, SIDE), np.uint8)
        self.action = np.zeros(capacity, np.int64)
        self.reward = np.zeros(capacity, np.float32)
        self.done = np.zeros(capacity, np.float32)
        self.first = np.zeros(capacity, bool)
        self.capacity, self.size, self.pos = capacity, 0, 0
        self.rng = np.random.default_rng(seed)

    def add(self, frame, action, reward, done, first):
        i = self.pos
        self.frames[i] = frame
        self.action[i], self.reward[i], self.done[i], self.first[i] = action, reward, done, first
        self.pos = (i + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def sample(self, n):
        # offsets from the oldest entry: needs one before and one after
        i = (self.pos - self.size + self.rng.integers(1, self.size - 1, n)) % self.capacity
        before = np.where(self.first[i], i, i - 1)
        after = (i + 1) % self.capacity
        x = np.empty((n, STACK + 1, SIDE, SIDE), np.uint8)
        x[:, 0], x[:, 1], x[:, 2] = self.frames[before], self.frames[i], self.frames[after]
        x = torch.from_numpy(x).float().mul_(1 / 255)
        return (x[:, :STACK], torch.from_numpy(self.action[i]), torch.from_numpy(self.reward[i]),
                x[:, 1:], torch.from_numpy(self.done[i]))


class ConvQ(nn.Module):
    def __init__(self, n_actions):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(STACK, 8, 6, stride=2), nn.ReLU(inplace=True),
            nn.Conv2d(8, 16, 4, stride=2), nn.ReLU(inplace=True),
            nn.Conv2d(16, 16, 3), nn.ReLU(inplace=True), nn.Flatten())
        self.fc = nn.Sequential(nn.Linear(16 * 36, 128), nn.ReLU(inplace=True), nn.Linear(128, n_actions))

    def forward(self, x):
        return self.fc(self.conv(x))


def learn(net, target, opt, replay, batch_size, gamma):
    s, a, r, s2, d = replay.sample(batch_size)
    with torch.no_grad():
        best = net(s2).argmax(1, keepdim=True)
        y = r + gamma * (1 - d) * target(s2).gather(1, best).squeeze(1)
    q = net(s).gather(1, a[:, None]).squeeze(1)
    loss = F.smooth_l1_loss(q, y)
    opt.zero_grad()
    loss.backward()
    opt.step()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=20)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--train-every", type=int, default=4)
    ap.add_argument("--start", type=int, default=2000)
    args = ap.parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)

    game, replay = FruitGame(args.seed), FrameReplay(40_000, args.seed)
    net, target = ConvQ(game.actions), ConvQ(game.actions)
    target.load_state_dict(net.state_dict())
    opt = torch.optim.Adam(net.parameters(), lr=3e-4, fused=True)
    view = torch.zeros(1, STACK, SIDE, SIDE)
    frame, first = game.reset(), True
    view[0, 0] = view[0, 1] = torch.from_numpy(frame).float() / 255
    step = updates = 0
    score, scores = 0.0, []
    mark = None
    t0 = time.perf_counter()
    while time.perf_counter() - t0 < args.seconds:
        eps = 1.0 if step < args.start else max(0.05, 1 - (step - args.start) / 15_000)
        if random.random() < eps:
            action = random.randrange(game.actions)
        else:
            with torch.inference_mode():
                action = int(net(view).argmax())
        slot = replay.pos
        replay.add(frame, action, 0.0, 0.0, first)
        frame, reward, done = game.step(action)
        replay.reward[slot], replay.done[slot] = reward, done
        score += reward
        step += 1
        first = done
        if done:
            scores.append(score)
            score = 0.0
            frame = game.reset()
            view[0, 0] = view[0, 1] = torch.from_numpy(frame).float() / 255
        else:
            view[0, 0] = view[0, 1]
            view[0, 1] = torch.from_numpy(frame).float() / 255
        if step >= args.start and step % args.train_every == 0:
            learn(net, target, opt, replay, args.batch_size, 0.97)
            updates += 1
            if updates % 500 == 0:
                target.load_state_dict(net.state_dict())
            if updates == 10:
                mark = (time.perf_counter(), step)
    span = time.perf_counter() - mark[0]
    print(f"games {len(scores)}, mean score {sum(scores[-20:]) / max(1, len(scores[-20:])):.2f}")
    print(json.dumps({"env_steps": step - mark[1], "seconds": span, "env_steps_per_s": (step - mark[1]) / span, "updates": updates}))


if __name__ == "__main__":
    main()
