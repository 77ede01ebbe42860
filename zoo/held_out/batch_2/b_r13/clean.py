"""Cross-entropy method for a double pendulum on a cart.

A candidate is the weight vector of a small tanh controller.  All candidates, and several trials
of each, are rolled out side by side; the equations of motion are solved by Runge-Kutta steps.
"""
import argparse
import json
import time
from dataclasses import dataclass

import numpy as np

f32 = np.float32


@dataclass(frozen=True)
class Plant:
    m0: float = 1.0     # cart
    m1: float = 0.3     # lower rod (mass at its end)
    m2: float = 0.2     # upper rod
    l1: float = 0.5
    l2: float = 0.5
    g: float = 9.81
    drag: float = 0.1
    dt: float = 0.02

    def slope(self, z, u):
        """z = [x, a, b, x', a', b'] as rows; returns dz/dt."""
        a, b, vx, va, vb = z[1], z[2], z[3], z[4], z[5]
        sa, ca, sb, cb = np.sin(a), np.cos(a), np.sin(b), np.cos(b)
        cd, sd = ca * cb + sa * sb, sa * cb - ca * sb
        m12 = self.m1 + self.m2
        # mass matrix (symmetric)
        A = f32(self.m0 + m12)
        B = f32(m12 * self.l1) * ca
        C = f32(self.m2 * self.l2) * cb
        D = f32(m12 * self.l1 ** 2)
        E = f32(self.m2 * self.l1 * self.l2) * cd
        F = f32(self.m2 * self.l2 ** 2)
        k = f32(self.m2 * self.l1 * self.l2) * sd
        va2, vb2 = va * va, vb * vb
        p = u - f32(self.drag) * vx + f32(m12 * self.l1) * va2 * sa + f32(self.m2 * self.l2) * vb2 * sb
        q = f32(m12 * self.g * self.l1) * sa - k * vb2 - f32(0.01) * va
        r = f32(self.m2 * self.g * self.l2) * sb + k * va2 - f32(0.01) * vb
        # Cramer's rule
        DF_EE, BF_CE, BE_CD = D * F - E * E, B * F - C * E, B * E - C * D
        det = f32(1) / (A * DF_EE - B * BF_CE + C * BE_CD)
        AE_BC = A * E - B * C
        out = np.empty_like(z)
        out[:3] = z[3:]
        out[3] = (p * DF_EE - q * BF_CE + r * BE_CD) * det
        out[4] = (-p * BF_CE + q * (A * F - C * C) - r * AE_BC) * det
        out[5] = (p * BE_CD - q * AE_BC + r * (A * D - B * B)) * det
        return out

    def advance(self, z, u):
        h = f32(self.dt)
        k1 = self.slope(z, u)
        k2 = self.slope(z + f32(0.5) * h * k1, u)
        k3 = self.slope(z + f32(0.5) * h * k2, u)
        k4 = self.slope(z + h * k3, u)
        k2 += k3
        k2 *= f32(2)
        k2 += k1
        k2 += k4
        k2 *= h / f32(6)
        k2 += z
        return k2


class Controllers:
    """A population of controllers with one hidden layer, evaluated by batched products."""

    n_in, n_hidden = 6, 6
    size = n_in * n_hidden + n_hidden

    def __init__(self, theta):
        n = len(theta)
        cut = self.n_in * self.n_hidden
        self.W = np.ascontiguousarray(theta[:, :cut].reshape(n, self.n_hidden, self.n_in), dtype=f32)
        self.v = np.ascontiguousarray(theta[:, None, cut:], dtype=f32)

    def force(self, z):
        """z is (6, candidates * trials)."""
        n = len(self.W)
        x = z.reshape(6, n, -1).transpose(1, 0, 2)
        return f32(15) * np.tanh(self.v @ np.tanh(self.W @ x)).reshape(-1)


def trials(plant, theta, rng, repeats, horizon):
    """Mean return per candidate, and the number of simulated steps."""
    n = len(theta)
    ctl = Controllers(theta)
    start = rng.uniform(-0.06, 0.06, (6, repeats)).astype(f32)
    z = np.tile(start, (1, n))
    alive = np.ones(n * repeats, dtype=bool)
    gained = np.zeros(n * repeats, dtype=f32)
    cand = np.arange(n * repeats) // repeats
    steps = 0
    for _ in range(horizon):
        z = plant.advance(z, ctl.force(z))
        steps += z.shape[1]
        alive &= (np.abs(z[0]) < 2.4) & (np.abs(z[1]) < 0.6) & (np.abs(z[2]) < 0.6)
        gained += alive * (f32(1) - f32(0.1) * np.abs(z[0]))
        if not alive.any():
            break
        np.clip(z, f32(-30), f32(30), out=z)
    return np.bincount(cand, gained, n) / repeats, steps


class CEM:
    def __init__(self, dim, rng, population=128, elite=16, noise=0.3):
        self.rng, self.population, self.elite = rng, population, elite
        self.mean, self.std = np.zeros(dim), np.ones(dim)
        self.noise = noise

    def ask(self):
        self.theta = self.mean + self.std * self.rng.standard_normal((self.population, len(self.mean)))
        return self.theta

    def tell(self, score):
        best = self.theta[np.argpartition(-score, self.elite)[: self.elite]]
        self.mean = best.mean(0)
        self.std = np.sqrt(best.var(0) + self.noise ** 2)
        self.noise *= 0.98


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=8.0)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--repeats", type=int, default=16)
    ap.add_argument("--horizon", type=int, default=300)
    args = ap.parse_args()
    rng = np.random.default_rng(args.seed)
    plant, cem = Plant(), CEM(Controllers.size, rng)
    steps = steps0 = gen = 0
    mark = None
    start = now = time.perf_counter()
    while now - start < args.seconds:
        score, n = trials(plant, cem.ask(), rng, args.repeats, args.horizon)
        cem.tell(score)
        steps += n
        gen += 1
        if gen % 10 == 0:
            print(f"generation {gen}: mean {score.mean():.1f}, best {score.max():.1f}")
        now = time.perf_counter()
        if mark is None and now - start >= 0.7:
            mark, steps0 = now, steps
    n, s = steps - steps0, now - mark
    print(json.dumps({"env_steps": n, "seconds": round(s, 3), "env_steps_per_s": round(n / s, 2), "updates": gen}))


if __name__ == "__main__":
    main()
