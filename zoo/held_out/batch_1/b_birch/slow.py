"""A boat that must reach a buoy.  The simulator is a separate program that talks lines of text over TCP,
as the original (a Unity build) does; here a stand-in of it is started by this script."""
import argparse
import json
import math
import multiprocessing as mp
import random
import socket
import time

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

BEAMS = 32
ACTIONS = ("PORT", "AHEAD", "STARBOARD")


# ------------------------------------------------------------------ simulator
class Harbour:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.angles = np.linspace(-math.pi, math.pi, BEAMS, endpoint=False)

    def restart(self):
        self.pos = np.zeros(2)
        self.heading = self.rng.uniform(-math.pi, math.pi)
        self.buoy = self.rng.uniform(-8, 8, 2)
        self.rocks = self.rng.uniform(-9, 9, (6, 2))
        self.t = 0
        return self.sense()

    def sense(self):
        rel = self.rocks - self.pos
        dist = np.hypot(rel[:, 0], rel[:, 1])
        bearing = np.arctan2(rel[:, 1], rel[:, 0]) - self.heading
        off = np.abs((bearing[:, None] - self.angles[None] + math.pi) % (2 * math.pi) - math.pi)
        seen = np.where(off < 0.2, dist[:, None], 10.0)
        to_buoy = self.buoy - self.pos
        b = math.atan2(to_buoy[1], to_buoy[0]) - self.heading
        return np.concatenate([np.minimum(seen.min(0), 10.0) / 10.0, [math.cos(b), math.sin(b), math.hypot(*to_buoy) / 10.0]])

    def move(self, order):
        before = math.hypot(*(self.buoy - self.pos))
        self.heading += {"PORT": 0.25, "AHEAD": 0.0, "STARBOARD": -0.25}[order]
        self.pos = self.pos + 0.3 * np.array([math.cos(self.heading), math.sin(self.heading)])
        after = math.hypot(*(self.buoy - self.pos))
        self.t += 1
        hit = np.hypot(*(self.rocks - self.pos).T).min() < 0.3
        arrived = after < 0.6
        reward = before - after + 5.0 * arrived - 2.0 * hit
        return self.sense(), reward, bool(arrived or hit or self.t >= 120)


def serve(port_pipe, seed):
    listener = socket.create_server(("127.0.0.1", 0))
    port_pipe.send(listener.getsockname()[1])
    peer, _ = listener.accept()
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    harbour = Harbour(seed)
    commands = peer.makefile("r", newline="\n")
    for line in commands:
        word = line.strip()
        if word == "QUIT":
            break
        if word == "RESTART":
            obs, reward, over = harbour.restart(), 0.0, False
        else:
            obs, reward, over = harbour.move(word)
        text = " ".join(["%.6f" % v for v in obs.tolist()])
        peer.sendall(("%s|%.6f|%d\n" % (text, reward, over)).encode("ascii"))
    peer.close()


# ------------------------------------------------------------------ client side
class SimulatorLink:
    def __init__(self, port):
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send_line(self, word):
        self.sock.sendall(word.encode("ascii") + b"\n")

    def read_line(self):
        line = b""
        while not line.endswith(b"\n"):
            piece = self.sock.recv(1)
            if not piece:
                raise ConnectionError("simulator went away")
            line += piece
        return line.decode("ascii")

    def close(self):
        self.send_line("QUIT")
        self.sock.close()


class BoatClient:
    """What the training code sees."""

    def __init__(self, link):
        self.link = link

    def restart(self):
        self.link.send_line("RESTART")
        return self._answer()[0]

    def order(self, k):
        self.link.send_line(ACTIONS[k])
        return self._answer()

    def _answer(self):
        sensors, reward, over = self.link.read_line().split("|")
        return np.array(sensors.split(), dtype=np.float32), float(reward), over.strip() == "1"


# ------------------------------------------------------------------ learner
class Helmsman(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(BEAMS + 3, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.pi = nn.Linear(64, len(ACTIONS))
        self.v = nn.Linear(64, 1)

    def forward(self, x):
        h = self.body(x)
        return self.pi(h), self.v(h).squeeze(-1)


def gae(rewards, values, overs, last, gamma=0.98, lam=0.95):
    adv = np.zeros_like(rewards)
    acc = 0.0
    for t in range(len(rewards) - 1, -1, -1):
        alive = 1.0 - overs[t]
        nxt = last if t == len(rewards) - 1 else values[t + 1]
        acc = rewards[t] + gamma * alive * nxt - values[t] + gamma * lam * alive * acc
        adv[t] = acc
    return adv


def improve(net, opt, obs, acts, adv, ret):
    obs, acts = torch.from_numpy(obs), torch.from_numpy(acts)
    adv, ret = torch.from_numpy(adv), torch.from_numpy(ret)
    adv = (adv - adv.mean()) / (adv.std() + 1e-6)
    logits, v = net(obs)
    dist = Categorical(logits=logits)
    loss = -(dist.log_prob(acts) * adv).mean() + 0.5 * (v - ret).pow(2).mean() - 0.01 * dist.entropy().mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    opt.step()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--seconds", type=float, default=8.0)
    cli.add_argument("--seed", type=int, default=0)
    opts = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(opts.seed)
    rng = random.Random(opts.seed)

    ours, theirs = mp.Pipe()
    sim = mp.Process(target=serve, args=(theirs, opts.seed), daemon=True)
    sim.start()
    link = SimulatorLink(ours.recv())
    boat = BoatClient(link)
    net = Helmsman()
    opt = torch.optim.Adam(net.parameters(), lr=7e-4)

    horizon = 64
    obs_mem = np.zeros((horizon, BEAMS + 3), np.float32)
    act_mem = np.zeros(horizon, np.int64)
    rew_mem, val_mem, over_mem = (np.zeros(horizon, np.float32) for _ in range(3))
    total = 0
    score, scores = 0.0, []
    x = boat.restart()
    t_start = time.perf_counter()
    t_warm, n_warm = None, 0
    while time.perf_counter() - t_start < opts.seconds:
        for i in range(horizon):
            with torch.no_grad():
                logits, v = net(torch.from_numpy(x))
            p = torch.softmax(logits, -1).tolist()
            k = rng.choices((0, 1, 2), weights=p)[0]
            y, r, over = boat.order(k)
            obs_mem[i], act_mem[i], rew_mem[i], val_mem[i], over_mem[i] = x, k, r, v.item(), over
            score += r
            total += 1
            if over:
                scores.append(score)
                score = 0.0
                y = boat.restart()
            x = y
        with torch.no_grad():
            last = net(torch.from_numpy(x))[1].item()
        adv = gae(rew_mem, val_mem, over_mem, last)
        improve(net, opt, obs_mem, act_mem, adv, adv + val_mem)
        if t_warm is None and time.perf_counter() - t_start > 1.0:
            t_warm, n_warm = time.perf_counter(), total
    sec = time.perf_counter() - t_warm
    link.close()
    sim.join(timeout=2)
    print("mean of last 20 trips: %.2f" % np.mean(scores[-20:]))
    print(json.dumps({"env_steps": total - n_warm, "seconds": round(sec, 3), "env_steps_per_s": round((total - n_warm) / sec, 1)}))


if __name__ == "__main__":
    main()
