"""Evolution strategies (mirrored noise, rank shaping, Adam) on two poles on one cart. NumPy only."""
import argparse
import json
import math
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter_ns as ns

import numpy as np

G, M_CART, H = 9.8, 1.0, 0.01
POLES = ((0.5, 0.1), (0.05, 0.01))  # half length, mass


class TwoPoles:
    def __init__(self, rng, max_steps=400):
        self.rng, self.max_steps = rng, max_steps
        self.calls = 0

    def reset(self):
        self.t = 0
        self.s = [self.rng.uniform(-0.5, 0.5), 0.0, self.rng.uniform(-0.07, 0.07), 0.0, 0.0, 0.0]
        return self.s

    @staticmethod
    def _deriv(s, force):
        num, den, tmp = force, M_CART, []
        for k, (l, m) in enumerate(POLES):
            th, om = s[2 + 2 * k], s[3 + 2 * k]
            sn, cs = math.sin(th), math.cos(th)
            tmp.append((sn, cs, l))
            num += m * l * om * om * sn + 0.75 * m * cs * (-G * sn)
            den += m * (1 - 0.75 * cs * cs)
        acc = num / den
        out = [s[1], acc]
        for k, (sn, cs, l) in enumerate(tmp):
            out += [s[3 + 2 * k], -0.75 / l * (acc * cs - G * sn)]
        return out

    def step(self, u):
        self.calls += 1
        f = 10.0 * u
        s = self.s
        for _ in range(2):
            a = self._deriv(s, f)
            b = self._deriv([x + 0.5 * H * d for x, d in zip(s, a)], f)
            c = self._deriv([x + 0.5 * H * d for x, d in zip(s, b)], f)
            e = self._deriv([x + H * d for x, d in zip(s, c)], f)
            s = [x + H / 6 * (p + 2 * q + 2 * r + z) for x, p, q, r, z in zip(s, a, b, c, e)]
        self.s = s
        self.t += 1
        fell = abs(s[0]) > 2.4 or abs(s[2]) > 0.63 or abs(s[4]) > 0.63
        return s, 1.0, fell, self.t >= self.max_steps


SCALE = np.array([0.5, 0.7, 3.0, 1.0, 3.0, 0.7])


@dataclass
class Genome:
    n_in: int = 6
    n_hid: int = 32
    shapes: list = field(init=False)
    size: int = field(init=False)

    def __post_init__(self):
        self.shapes = [(self.n_hid, self.n_in), (self.n_hid,), (self.n_hid, self.n_hid), (self.n_hid,),
                       (self.n_hid,), (1,)]
        self.size = sum(int(np.prod(s)) for s in self.shapes)

    def unpack(self, flat):
        out, i = [], 0
        for s in self.shapes:
            n = int(np.prod(s))
            out.append(flat[i:i + n].reshape(s))
            i += n
        return out


def think(parts, x):
    w1, b1, w2, b2, w3, b3 = parts
    h = np.tanh(w1 @ x + b1)
    h = np.tanh(w2 @ h + b2)
    return math.tanh(float(w3 @ h + b3[0]))


def lifetime(parts, env, acc, deadline):
    """Fitness of one individual; acc[0..3] gather nanoseconds."""
    p = ns()
    s = env.reset()
    q = ns()
    acc[0] += q - p
    total, n, used = 0.0, 0, 0.0
    while True:
        x = np.array(s) * SCALE
        p = ns()
        acc[1] += p - q
        u = think(parts, x)
        q = ns()
        acc[2] += q - p
        s, r, fell, late = env.step(u)
        p = ns()
        acc[0] += p - q
        total += r - 0.1 * abs(s[0])
        used += u * u
        n += 1
        if fell or late or p > deadline:
            q = ns()
            acc[3] += q - p
            return total - 0.02 * used, n
        q = ns()
        acc[3] += q - p


def exhibition(parts, env):
    s, n = env.reset(), 0
    while True:
        s, _, fell, late = env.step(think(parts, np.array(s) * SCALE))
        n += 1
        if fell or late:
            return n


def ranks(f):
    r = np.empty(len(f))
    r[np.argsort(f)] = np.arange(len(f))
    return r / (len(f) - 1) - 0.5


def evolve(args):
    rng = np.random.default_rng(args.seed)
    genome = Genome()
    mean = 0.1 * rng.standard_normal(genome.size)
    m, v = np.zeros(genome.size), np.zeros(genome.size)
    env = TwoPoles(np.random.default_rng(args.seed + 1))
    arena = TwoPoles(np.random.default_rng(args.seed + 2))
    steps = gens = lives = 0
    best, stale, sigma = -1e9, 0, args.sigma
    with tempfile.TemporaryDirectory() as d:
        sheet = Path(d, "fitness.csv").open("w")
        acc = [0] * 8
        t0 = ns()
        deadline = t0 + int(args.seconds * 1e9)
        p = t0
        while p < deadline:
            noise = rng.standard_normal((args.pairs, genome.size))
            noise = np.concatenate([noise, -noise])
            fit = np.zeros(len(noise))
            p2 = ns(); acc[3] += p2 - p
            for i, e in enumerate(noise):
                q = ns()
                parts = genome.unpack(mean + sigma * e)
                acc[3] += ns() - q
                fit[i], n = lifetime(parts, env, acc, deadline)
                steps += n
                lives += 1
            p = ns()
            if p > deadline:
                break
            f = ranks(fit)
            top = float(fit.max())
            stale = 0 if top > best else stale + 1
            best = max(best, top)
            if stale > 15:
                sigma, stale = max(0.02, sigma * 0.8), 0
            q = ns(); acc[3] += q - p
            grad = f @ noise / (len(noise) * sigma)
            m = 0.9 * m + 0.1 * grad
            v = 0.999 * v + 0.001 * grad * grad
            mh, vh = m / (1 - 0.9 ** (gens + 1)), v / (1 - 0.999 ** (gens + 1))
            mean = mean + args.lr * mh / (np.sqrt(vh) + 1e-8) - 0.0005 * mean
            gens += 1
            p = ns(); acc[4] += p - q
            if gens % 3 == 0:
                shown = exhibition(genome.unpack(mean), arena)
                q = ns(); acc[5] += q - p
                sheet.write(f"{gens},{fit.mean():.3f},{top:.3f},{shown},{sigma}\n")
                sheet.flush()
                p = ns(); acc[6] += p - q
            if gens % 4 == 0:
                np.savez(Path(d, f"gen{gens % 20}.npz"), mean=mean, m=m, v=v, best=best)
                q = ns(); acc[7] += q - p
                p = q
        took = ns() - t0
        sheet.close()
    labels = ["env", "observe", "act", "own", "optimiser", "evaluate", "log", "save"]
    print(json.dumps({"env_steps": steps, "updates": gens, "episodes": lives, "seconds": took / 1e9,
                      "phases": {k: x / 1e9 for k, x in zip(labels, acc)}, "calls_of_step": env.calls + arena.calls}))


if __name__ == "__main__":
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--seconds", type=float, default=10)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--pairs", type=int, default=16)
    ap.add_argument("--sigma", type=float, default=0.1)
    ap.add_argument("--lr", type=float, default=0.03)
    evolve(ap.parse_args())
