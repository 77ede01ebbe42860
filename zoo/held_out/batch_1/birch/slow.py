import argparse, json, time
import numpy as np
import torch
import torch.nn as nn
from torch.distributions import MultivariateNormal

torch.set_num_threads(1)


class ReachArm:
    """Planar arm with n joints which must bring its tip to a target."""

    def __init__(self, n_joints=6, seed=0):
        self.n = n_joints
        self.rng = np.random.default_rng(seed)
        self.obs_dim = 3 * n_joints + 4
        self.act_dim = n_joints
        self.max_steps = 150

    def reset(self):
        self.q = self.rng.uniform(-1.0, 1.0, self.n)
        self.dq = np.zeros(self.n)
        ang = self.rng.uniform(0, 2 * np.pi)
        self.goal = self.rng.uniform(0.3, 0.9) * np.array([np.cos(ang), np.sin(ang)])
        self.t = 0
        return self._obs()

    def _tip(self):
        c = np.cumsum(self.q)
        return np.array([np.cos(c).sum(), np.sin(c).sum()]) / self.n

    def _obs(self):
        self.tip = self._tip()
        return np.concatenate([np.cos(self.q), np.sin(self.q), self.dq, self.goal, self.goal - self.tip]).astype(np.float32)

    def step(self, u):
        u = np.clip(u, -1, 1)
        self.dq = 0.9 * self.dq + 0.1 * u
        self.q = self.q + 0.3 * self.dq
        self.t += 1
        obs = self._obs()
        dist = np.hypot(*(self.goal - self.tip))
        reward = -dist - 0.01 * float(u @ u) + (1.0 if dist < 0.05 else 0.0)
        return obs, reward, self.t >= self.max_steps


class RolloutBuffer:
    def __init__(self, n, obs_dim, act_dim):
        self.states = np.zeros((n, obs_dim), np.float32)
        self.actions = np.zeros((n, act_dim), np.float32)
        self.logprobs = np.zeros(n, np.float32)
        self.values = np.zeros(n + 1, np.float32)
        self.rewards = np.zeros(n, np.float32)
        self.dones = np.zeros(n, np.float32)
        self.n, self.ptr = n, 0

    def push(self, s, a, lp, v, r, d):
        i = self.ptr
        self.states[i], self.actions[i], self.logprobs[i] = s, a, lp
        self.values[i], self.rewards[i], self.dones[i] = v, r, d
        self.ptr += 1

    def full(self):
        return self.ptr == self.n

    def advantages(self, last_value, gamma, lam):
        self.values[self.n] = last_value
        v, r, d = self.values.tolist(), self.rewards.tolist(), self.dones.tolist()
        adv, acc = [0.0] * self.n, 0.0
        for t in range(self.n - 1, -1, -1):
            live = 1.0 - d[t]
            acc = r[t] + gamma * live * v[t + 1] - v[t] + gamma * lam * live * acc
            adv[t] = acc
        adv = np.array(adv, np.float32)
        return adv, adv + self.values[:-1]


class ActorCritic(nn.Module):
    def __init__(self, state_dim, action_dim, action_std):
        super().__init__()
        self.actor = nn.Sequential(
            nn.Linear(state_dim, 64), nn.Tanh(),
            nn.Linear(64, 64), nn.Tanh(),
            nn.Linear(64, action_dim), nn.Tanh(),
        )
        self.critic = nn.Sequential(
            nn.Linear(state_dim, 64), nn.Tanh(),
            nn.Linear(64, 64), nn.Tanh(),
            nn.Linear(64, 1),
        )
        self.log_std = nn.Parameter(torch.full((action_dim,), float(np.log(action_std))))

    def policy(self, state):
        mean = self.actor(state)
        var = torch.exp(2 * self.log_std).expand_as(mean)
        return MultivariateNormal(mean, torch.diag_embed(var))

    @torch.no_grad()
    def act(self, state):
        dist = self.policy(state)
        action = dist.sample()
        return action, dist.log_prob(action), self.critic(state)

    def evaluate(self, states, actions):
        dist = self.policy(states)
        return dist.log_prob(actions), self.critic(states).squeeze(-1), dist.entropy()


class PPO:
    def __init__(self, state_dim, action_dim, lr=3e-4, gamma=0.98, lam=0.95, K_epochs=4, eps_clip=0.2,
                 horizon=1024, minibatch=256):
        self.gamma, self.lam = gamma, lam
        self.K_epochs, self.eps_clip, self.minibatch = K_epochs, eps_clip, minibatch
        self.policy = ActorCritic(state_dim, action_dim, 0.6)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=lr)
        self.buffer = RolloutBuffer(horizon, state_dim, action_dim)
        self.updates = 0

    def select_action(self, state):
        a, lp, v = self.policy.act(torch.from_numpy(state))
        return a.numpy(), lp.item(), v.item()

    def update(self, last_state):
        with torch.no_grad():
            last_value = self.policy.critic(torch.from_numpy(last_state)).item()
        buf = self.buffer
        adv, ret = buf.advantages(last_value, self.gamma, self.lam)
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        states, actions = torch.from_numpy(buf.states), torch.from_numpy(buf.actions)
        old_lp = torch.from_numpy(buf.logprobs)
        adv, ret = torch.from_numpy(adv), torch.from_numpy(ret)
        for _ in range(self.K_epochs):
            for ix in torch.randperm(buf.n).split(self.minibatch):
                lp, v, ent = self.policy.evaluate(states[ix], actions[ix])
                ratio = torch.exp(lp - old_lp[ix])
                clipped = ratio.clamp(1 - self.eps_clip, 1 + self.eps_clip)
                loss = (-torch.min(ratio * adv[ix], clipped * adv[ix]).mean()
                        + 0.5 * (v - ret[ix]).pow(2).mean() - 0.001 * ent.mean())
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.updates += 1
        buf.ptr = 0


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=60)
    ap.add_argument("--seed", type=int, default=0)
    opt = ap.parse_args()
    torch.manual_seed(opt.seed)
    env = ReachArm(seed=opt.seed)
    agent = PPO(env.obs_dim, env.act_dim)

    state = env.reset()
    total, base_steps, base_time = 0, 0, None
    start = time.perf_counter()
    while True:
        now = time.perf_counter()
        if base_time is None and now - start > 1.0:
            base_time, base_steps = now, total
        if now - start > opt.seconds:
            break
        action, lp, v = agent.select_action(state)
        nxt, reward, done = env.step(action)
        agent.buffer.push(state, action, lp, v, reward, done)
        state = env.reset() if done else nxt
        total += 1
        if agent.buffer.full():
            agent.update(state)
    secs = now - base_time
    print(json.dumps({"env_steps": total - base_steps, "seconds": round(secs, 3),
                      "env_steps_per_s": round((total - base_steps) / secs, 2), "updates": agent.updates}))


if __name__ == "__main__":
    main()
