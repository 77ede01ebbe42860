"""Soft actor-critic on LunarLander (continuous), with learned temperature."""
import argparse
import json
import os
import tempfile
from time import perf_counter_ns

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Normal
from torch.utils.tensorboard import SummaryWriter


class Laps:
    def __init__(self, n):
        self.w = np.zeros(n, dtype=np.int64)
        self.first = self.last = perf_counter_ns()

    def restart(self):
        self.w[:] = 0
        self.first = self.last = perf_counter_ns()

    def __call__(self, i):
        t = perf_counter_ns()
        self.w[i] += t - self.last
        self.last = t

    def elapsed(self):
        return (self.last - self.first) / 1e9


def mlp(i, h, o):
    return nn.Sequential(nn.Linear(i, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, o))


class GaussianPolicy(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden=128):
        super().__init__()
        self.body = mlp(obs_dim, hidden, 2 * act_dim)

    def forward(self, obs):
        mu, log_std = self.body(obs).chunk(2, dim=-1)
        return mu, log_std.clamp(-5, 2)

    def sample(self, obs):
        mu, log_std = self(obs)
        dist = Normal(mu, log_std.exp())
        u = dist.rsample()
        a = torch.tanh(u)
        logp = (dist.log_prob(u) - torch.log(1 - a.pow(2) + 1e-6)).sum(-1, keepdim=True)
        return a, logp


class Critic(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden=128):
        super().__init__()
        self.q1 = mlp(obs_dim + act_dim, hidden, 1)
        self.q2 = mlp(obs_dim + act_dim, hidden, 1)

    def forward(self, s, a):
        x = torch.cat([s, a], -1)
        return self.q1(x), self.q2(x)


class ReplayBuffer:
    def __init__(self, obs_dim, act_dim, capacity=100_000):
        self.obs = np.empty((capacity, obs_dim), np.float32)
        self.next_obs = np.empty((capacity, obs_dim), np.float32)
        self.act = np.empty((capacity, act_dim), np.float32)
        self.rew = np.empty((capacity, 1), np.float32)
        self.done = np.empty((capacity, 1), np.float32)
        self.capacity, self.ptr, self.size = capacity, 0, 0

    def add(self, o, a, r, o2, d):
        p = self.ptr
        self.obs[p], self.act[p], self.rew[p], self.next_obs[p], self.done[p] = o, a, r, o2, d
        self.ptr = (p + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def sample(self, n):
        idx = np.random.randint(self.size, size=n)
        return tuple(torch.as_tensor(x[idx]) for x in (self.obs, self.act, self.rew, self.next_obs, self.done))


class SAC:
    def __init__(self, obs_dim, act_dim, lap, gamma=0.99, tau=0.005, lr=7e-4):
        self.pi = GaussianPolicy(obs_dim, act_dim)
        self.critic = Critic(obs_dim, act_dim)
        self.critic_target = Critic(obs_dim, act_dim)
        self.critic_target.load_state_dict(self.critic.state_dict())
        self.log_alpha = torch.zeros(1, requires_grad=True)
        self.pi_optim = torch.optim.Adam(self.pi.parameters(), lr)
        self.critic_optim = torch.optim.Adam(self.critic.parameters(), lr)
        self.alpha_optim = torch.optim.Adam([self.log_alpha], lr)
        self.goal_entropy = -float(act_dim)
        self.gamma, self.tau, self.lap = gamma, tau, lap

    def choose(self, obs, greedy=False):
        with torch.no_grad():
            s = torch.as_tensor(obs, dtype=torch.float32).unsqueeze(0)
            a = torch.tanh(self.pi(s)[0]) if greedy else self.pi.sample(s)[0]
        return a[0].numpy()

    def learn(self, buffer, batch_size):
        lap = self.lap
        s, a, r, s2, d = buffer.sample(batch_size)
        lap(3)
        alpha = self.log_alpha.exp().detach()
        with torch.no_grad():
            a2, logp2 = self.pi.sample(s2)
            t1, t2 = self.critic_target(s2, a2)
            y = r + self.gamma * (1 - d) * (torch.min(t1, t2) - alpha * logp2)
        q1, q2 = self.critic(s, a)
        critic_loss = F.mse_loss(q1, y) + F.mse_loss(q2, y)
        lap(4)
        self.critic_optim.zero_grad()
        lap(6)
        critic_loss.backward()
        lap(5)
        self.critic_optim.step()
        lap(6)

        new_a, logp = self.pi.sample(s)
        pi_loss = (alpha * logp - torch.min(*self.critic(s, new_a))).mean()
        lap(4)
        self.pi_optim.zero_grad()
        lap(6)
        pi_loss.backward()
        lap(5)
        self.pi_optim.step()
        lap(6)

        alpha_loss = -(self.log_alpha * (logp.detach() + self.goal_entropy)).mean()
        lap(4)
        self.alpha_optim.zero_grad()
        lap(6)
        alpha_loss.backward()
        lap(5)
        self.alpha_optim.step()
        lap(6)

        for p, tp in zip(self.critic.parameters(), self.critic_target.parameters()):
            tp.data.mul_(1 - self.tau).add_(p.data, alpha=self.tau)
        lap(7)
        return critic_loss.item(), pi_loss.item(), alpha.item()


def test_policy(agent, env, seed):
    obs, _ = env.reset(seed=seed)
    total, steps, over = 0.0, 0, False
    while not over:
        obs, r, term, trunc, _ = env.step(agent.choose(obs, greedy=True))
        total += r
        steps += 1
        over = term or trunc
    return total, steps


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--random-steps", type=int, default=500)
    parser.add_argument("--update-every", type=int, default=4)
    cfg = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(cfg.seed)
    np.random.seed(cfg.seed)

    env = gym.make("LunarLander-v3", continuous=True, max_episode_steps=400)
    test_env = gym.make("LunarLander-v3", continuous=True, max_episode_steps=200)
    env.action_space.seed(cfg.seed)
    obs_dim, act_dim = env.observation_space.shape[0], env.action_space.shape[0]
    lap = Laps(12)
    agent = SAC(obs_dim, act_dim, lap)
    spare = ReplayBuffer(obs_dim, act_dim, 256)
    for _ in range(256):
        spare.add(np.zeros(obs_dim), np.zeros(act_dim), 0.0, np.zeros(obs_dim), 0.0)
    SAC(obs_dim, act_dim, lap).learn(spare, 8)
    folder = tempfile.TemporaryDirectory()
    tb = SummaryWriter(folder.name)
    tb.add_scalar("start", 0, 0)
    memory = ReplayBuffer(obs_dim, act_dim)
    step = updates = episodes = test_steps = 0
    ep_return, ep_len, returns = 0.0, 0, []

    lap.restart()
    obs, _ = env.reset(seed=cfg.seed)
    lap(0)
    while lap.elapsed() < cfg.seconds:
        if step < cfg.random_steps:
            action = env.action_space.sample()
        else:
            action = agent.choose(obs)
        lap(1)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        lap(0)
        step += 1
        ep_return += reward
        ep_len += 1
        scaled = float(np.clip(reward, -20, 20)) * 0.1
        lap(11)
        memory.add(obs, action, scaled, next_obs, float(terminated))
        lap(2)
        obs = next_obs
        if terminated or truncated:
            episodes += 1
            returns.append(ep_return)
            lap(11)
            tb.add_scalar("episode/return", ep_return, step)
            tb.add_scalar("episode/length", ep_len, step)
            lap(9)
            ep_return, ep_len = 0.0, 0
            obs, _ = env.reset()
            lap(0)
        if step >= cfg.random_steps and step % cfg.update_every == 0:
            lap(11)
            c, p, al = agent.learn(memory, cfg.batch_size)
            updates += 1
            lap(11)
            if updates % 3 == 0:
                tb.add_scalar("loss/critic", c, step)
                tb.add_scalar("loss/policy", p, step)
                tb.add_scalar("alpha", al, step)
                lap(9)
            if updates % 120 == 0:
                score, k = test_policy(agent, test_env, 10_000 + updates)
                test_steps += k
                lap(8)
                tb.add_scalar("test/return", score, step)
                lap(9)
            if updates % 60 == 0:
                torch.save({"pi": agent.pi.state_dict(), "critic": agent.critic.state_dict(),
                            "pi_optim": agent.pi_optim.state_dict(), "critic_optim": agent.critic_optim.state_dict()},
                           os.path.join(folder.name, f"sac_{updates % 3}.pt"))
                lap(10)
    lap(11)
    tb.close()
    folder.cleanup()
    names = "env act store sample forward backward optimiser target evaluate log save own".split()
    print(json.dumps({"env_steps": step, "updates": updates, "episodes": episodes, "seconds": lap.elapsed(),
                      "phases": {k: int(v) / 1e9 for k, v in zip(names, lap.w)}, "calls_of_step": step + test_steps}))
