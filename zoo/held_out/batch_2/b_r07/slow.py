"""TD3 with several updates per step (as in REDQ) against a small tank simulator behind TCP.

The simulator is a program of its own that speaks a simple protocol: four bytes of length,
then JSON.  {"cmd": "open"} starts a trial, {"cmd": "pump", "u": [..]} moves it on.
"""
import argparse
import json
import math
import multiprocessing as mp
import random
import socket
import struct
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


# ---------------------------------------------------------------- the simulator
class Tanks:
    """Four coupled tanks, two pumps; the levels of the lower two have to follow set points."""

    def __init__(self, seed):
        self.rnd = random.Random(seed)
        self.trial()

    def trial(self):
        self.h = [self.rnd.uniform(2, 15) for _ in range(4)]
        self.goal = [self.rnd.uniform(6, 14), self.rnd.uniform(6, 14)]
        self.n = 0
        return self.view()

    def view(self):
        return [x / 10 - 1 for x in self.h] + [g / 10 - 1 for g in self.goal]

    def pump(self, u):
        v = [5.0 * (1 + max(-1.0, min(1.0, x))) for x in u]
        h = self.h
        for _ in range(20):
            q = [0.25 * math.sqrt(2 * max(x, 0.0)) for x in h]
            d = [-q[0] + q[2] + 0.07 * v[0], -q[1] + q[3] + 0.06 * v[1],
                 -q[2] + 0.05 * v[1], -q[3] + 0.05 * v[0]]
            h = [min(20.0, max(0.0, x + 0.25 * y)) for x, y in zip(h, d)]
        self.h = h
        self.n += 1
        cost = sum(abs(a - b) for a, b in zip(h, self.goal)) / 10
        return self.view(), -cost, self.n >= 60


def read_exactly(conn, n):
    data = conn.recv(n)
    while 0 < len(data) < n:
        more = conn.recv(n - len(data))
        if not more:
            break
        data += more
    return data


def receive(conn):
    head = read_exactly(conn, 4)
    if len(head) < 4:
        return None
    return json.loads(read_exactly(conn, struct.unpack("!I", head)[0]))


def send(conn, message):
    body = json.dumps(message).encode()
    conn.sendall(struct.pack("!I", len(body)))
    conn.sendall(body)


def serve(listener, seed):
    conn, _ = listener.accept()
    tanks = Tanks(seed)
    while True:
        msg = receive(conn)
        if msg is None or msg["cmd"] == "close":
            return
        if msg["cmd"] == "open":
            reply = {"y": tanks.trial()}
        else:
            y, r, end = tanks.pump(msg["u"])
            reply = {"y": y, "r": r, "end": end}
        text = json.dumps(reply).encode()
        conn.sendall(struct.pack("!I", len(text)) + text)


class Plant:
    """Client side."""

    def __init__(self, seed):
        listener = socket.create_server(("127.0.0.1", 0))
        self.process = mp.get_context("fork").Process(target=serve, args=(listener, seed), daemon=True)
        self.process.start()
        self.conn = socket.create_connection(listener.getsockname())
        listener.close()

    def ask(self, **message):
        send(self.conn, message)
        return receive(self.conn)

    def open(self):
        return np.array(self.ask(cmd="open")["y"], dtype=np.float32)

    def pump(self, u):
        a = self.ask(cmd="pump", u=[float(x) for x in u])
        return np.array(a["y"], dtype=np.float32), a["r"], a["end"]

    def close(self):
        send(self.conn, {"cmd": "close"})
        self.process.join(timeout=2)
        self.conn.close()


# ---------------------------------------------------------------- the learner
def mlp(*sizes):
    layers = []
    for a, b in zip(sizes[:-1], sizes[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class TD3:
    def __init__(self, ny, nu, gamma=0.97, tau=0.005, lr=1e-3):
        self.pi, self.pi_t = mlp(ny, 64, 64, nu), mlp(ny, 64, 64, nu)
        self.q = nn.ModuleList(mlp(ny + nu, 64, 64, 1) for _ in range(2))
        self.q_t = nn.ModuleList(mlp(ny + nu, 64, 64, 1) for _ in range(2))
        self.pi_t.load_state_dict(self.pi.state_dict())
        self.q_t.load_state_dict(self.q.state_dict())
        self.opt_pi = torch.optim.Adam(self.pi.parameters(), lr)
        self.opt_q = torch.optim.Adam(self.q.parameters(), lr)
        self.gamma, self.tau, self.updates = gamma, tau, 0

    @torch.no_grad()
    def act(self, y, noise):
        u = torch.tanh(self.pi(torch.from_numpy(y))).numpy()
        return np.clip(u + noise * np.random.randn(len(u)), -1, 1).astype(np.float32)

    def update(self, y, u, r, y2, alive):
        with torch.no_grad():
            eps = (0.2 * torch.randn_like(u)).clamp(-0.5, 0.5)
            u2 = (torch.tanh(self.pi_t(y2)) + eps).clamp(-1, 1)
            x2 = torch.cat([y2, u2], 1)
            target = r + self.gamma * alive * torch.min(self.q_t[0](x2), self.q_t[1](x2)).squeeze(1)
        x = torch.cat([y, u], 1)
        loss = sum(F.mse_loss(q(x).squeeze(1), target) for q in self.q)
        self.opt_q.zero_grad()
        loss.backward()
        self.opt_q.step()
        self.updates += 1
        if self.updates % 2 == 0:
            gain = -self.q[0](torch.cat([y, torch.tanh(self.pi(y))], 1)).mean()
            self.opt_pi.zero_grad()
            gain.backward()
            self.opt_pi.step()
            with torch.no_grad():
                for net, slow in ((self.pi, self.pi_t), (self.q, self.q_t)):
                    torch._foreach_lerp_(list(slow.parameters()), list(net.parameters()), self.tau)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=8.0)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--utd", type=int, default=8)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)

    plant = Plant(args.seed)
    agent = TD3(6, 2)
    cap = 20_000
    Y, U, Y2 = torch.zeros(cap, 6), torch.zeros(cap, 2), torch.zeros(cap, 6)
    R, A = torch.zeros(cap), torch.zeros(cap)
    n = n0 = 0
    mark, total, trials = None, 0.0, 0
    y = plant.open()
    start = now = time.perf_counter()
    while now - start < args.seconds:
        u = agent.act(y, 0.2) if n >= 8 else np.random.uniform(-1, 1, 2).astype(np.float32)
        y2, r, end = plant.pump(u)
        i = n % cap
        Y[i], U[i], Y2[i] = torch.from_numpy(y), torch.from_numpy(u), torch.from_numpy(y2)
        R[i], A[i] = r, 1.0
        n += 1
        total += r
        y = y2
        if end:
            trials += 1
            print("trial", trials, "return %.2f" % total)
            total, y = 0.0, plant.open()
        if n >= 8:
            for _ in range(args.utd):
                k = torch.randint(0, min(n, cap), (128,))
                agent.update(Y[k], U[k], R[k], Y2[k], A[k])
        now = time.perf_counter()
        if mark is None and now - start >= 1.2:
            mark, n0 = now, n
    plant.close()
    print(json.dumps({"env_steps": n - n0, "seconds": round(now - mark, 3),
                      "env_steps_per_s": round((n - n0) / (now - mark), 2), "updates": agent.updates}))


if __name__ == "__main__":
    main()
