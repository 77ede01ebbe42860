"""MADDPG for a swarm of drones which have to spread over landmarks (cooperative navigation)."""
import argparse
import json
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Swarm:
    """n drones, n landmarks, unit square; common reward."""

    def __init__(self, n, rng, horizon=50):
        self.n, self.rng, self.horizon = n, rng, horizon
        self.obs_dim = 4 + 2 * n

    def reset(self):
        self.pos = self.rng.uniform(-1, 1, (self.n, 2))
        self.vel = np.zeros((self.n, 2))
        self.marks = self.rng.uniform(-1, 1, (self.n, 2))
        self.t = 0
        return self._observe()

    def _observe(self):
        rel = (self.marks[None] - self.pos[:, None]).reshape(self.n, -1)
        return np.concatenate([self.pos, self.vel, rel], axis=1).astype(np.float32)

    def step(self, acts):
        self.vel = 0.75 * self.vel + 0.1 * acts
        self.pos = np.clip(self.pos + self.vel, -1.5, 1.5)
        self.t += 1
        d = np.linalg.norm(self.marks[None] - self.pos[:, None], axis=-1)
        reward = -float(d.min(axis=0).mean())
        return self._observe(), reward, self.t >= self.horizon


class Memory:
    def __init__(self, cap, n, obs_dim, act_dim, rng):
        self.obs = np.zeros((cap, n, obs_dim), np.float32)
        self.nxt = np.zeros((cap, n, obs_dim), np.float32)
        self.act = np.zeros((cap, n, act_dim), np.float32)
        self.rew = np.zeros((cap, 1), np.float32)
        self.cap, self.size, self.ptr, self.rng = cap, 0, 0, rng

    def add(self, o, a, r, o2):
        i = self.ptr
        self.obs[i], self.act[i], self.rew[i], self.nxt[i] = o, a, r, o2
        self.ptr = (i + 1) % self.cap
        self.size = min(self.size + 1, self.cap)

    def sample(self, k):
        idx = self.rng.integers(0, self.size, k)
        return [torch.from_numpy(x[idx]) for x in (self.obs, self.act, self.rew, self.nxt)]


class Actor(nn.Module):
    def __init__(self, obs_dim, act_dim, h=128):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(obs_dim, h), nn.LayerNorm(h), nn.ReLU(),
            nn.Linear(h, h), nn.LayerNorm(h), nn.ReLU(),
            nn.Linear(h, act_dim), nn.Tanh())

    def forward(self, o):
        return self.net(o)


class Critic(nn.Module):
    def __init__(self, dim, h=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, 1))

    def forward(self, o, a):
        return self.net(torch.cat([o, a], dim=1))


class Drone:
    """Actor, critic and targets of one agent."""

    def __init__(self, n, obs_dim, act_dim):
        joint = n * (obs_dim + act_dim)
        self.actor, self.actor_target = Actor(obs_dim, act_dim), Actor(obs_dim, act_dim)
        self.critic, self.critic_target = Critic(joint), Critic(joint)
        self.actor_target.load_state_dict(self.actor.state_dict())
        self.critic_target.load_state_dict(self.critic.state_dict())
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=5e-4, fused=True)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), lr=1e-3, fused=True)

    def sync(self, tau):
        with torch.no_grad():
            src = [*self.actor.parameters(), *self.critic.parameters()]
            dst = [*self.actor_target.parameters(), *self.critic_target.parameters()]
            torch._foreach_lerp_(dst, src, tau)


class MADDPG:
    def __init__(self, n, obs_dim, act_dim, rng):
        self.n, self.act_dim, self.rng = n, act_dim, rng
        self.drones = [Drone(n, obs_dim, act_dim) for _ in range(n)]
        self.memory = Memory(50_000, n, obs_dim, act_dim, rng)
        self.gamma, self.tau, self.batch = 0.95, 0.01, 256
        self.policy_delay = 2
        self.updates = 0

    @torch.no_grad()
    def act(self, obs, sigma):
        o = torch.from_numpy(obs)
        a = torch.stack([d.actor(o[i]) for i, d in enumerate(self.drones)]).numpy()
        return np.clip(a + sigma * self.rng.standard_normal(a.shape), -1, 1).astype(np.float32)

    def critic_loss(self, i, batch):
        obs, act, rew, nxt = batch
        k = obs.shape[0]
        with torch.no_grad():
            nxt_act = torch.cat([d.actor_target(nxt[:, j]) for j, d in enumerate(self.drones)], dim=1)
            y = rew + self.gamma * self.drones[i].critic_target(nxt.view(k, -1), nxt_act)
        q = self.drones[i].critic(obs.view(k, -1), act.view(k, -1))
        return F.mse_loss(q, y)

    def actor_loss(self, i, batch):
        obs, act, _, _ = batch
        k = obs.shape[0]
        joint = act.clone()
        joint[:, i] = self.drones[i].actor(obs[:, i])
        return -self.drones[i].critic(obs.view(k, -1), joint.view(k, -1)).mean()

    def update(self):
        batch = self.memory.sample(self.batch)
        self.updates += 1
        for i, drone in enumerate(self.drones):
            loss = self.critic_loss(i, batch)
            drone.critic_opt.zero_grad()
            loss.backward()
            drone.critic_opt.step()
            if self.updates % self.policy_delay == 0:
                drone.critic.requires_grad_(False)
                loss = self.actor_loss(i, batch)
                drone.actor_opt.zero_grad()
                loss.backward()
                drone.actor_opt.step()
                drone.critic.requires_grad_(True)
        for drone in self.drones:
            drone.sync(self.tau)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=30)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--drones", type=int, default=8)
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    rng = np.random.default_rng(args.seed)

    world = Swarm(args.drones, rng)
    team = MADDPG(args.drones, world.obs_dim, 2, rng)
    steps, episode, score, scores = 0, 0, 0.0, []
    obs = world.reset()
    t0 = time.perf_counter()
    first = None
    while time.perf_counter() - t0 < args.seconds:
        acts = team.act(obs, max(0.1, 0.5 - steps / 20_000))
        nxt, reward, done = world.step(acts)
        team.memory.add(obs, acts, reward, nxt)
        obs, score, steps = nxt, score + reward, steps + 1
        if done:
            scores.append(score)
            obs, score, episode = world.reset(), 0.0, episode + 1
        if steps >= 300 and steps % 4 == 0:
            team.update()
            if team.updates == 5:
                first = (steps, time.perf_counter())
    span = time.perf_counter() - first[1]
    done_steps = steps - first[0]
    print(f"episodes {episode}, last score {np.mean(scores[-10:]):.2f}")
    print(json.dumps({"env_steps": done_steps, "seconds": round(span, 3),
                      "env_steps_per_s": round(done_steps / span, 2), "updates": team.updates}))


if __name__ == "__main__":
    main()
