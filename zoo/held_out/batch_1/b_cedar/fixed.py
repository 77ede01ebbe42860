import argparse
import json
import time
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
from torch.distributions.categorical import Categorical


@dataclass
class Args:
    env_id: str = "CartPole-v1"
    num_envs: int = 8
    num_steps: int = 128
    update_epochs: int = 2
    num_minibatches: int = 4
    learning_rate: float = 2.5e-4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip_coef: float = 0.2
    ent_coef: float = 0.01
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5

    @property
    def batch_size(self):
        return self.num_envs * self.num_steps

    @property
    def minibatch_size(self):
        return self.batch_size // self.num_minibatches


def make_env(env_id, idx):
    def thunk():
        env = gym.make(env_id)
        env = gym.wrappers.RecordEpisodeStatistics(env)
        env.action_space.seed(idx)
        return env

    return thunk


def layer_init(layer, std=np.sqrt(2), bias_const=0.0):
    nn.init.orthogonal_(layer.weight, std)
    nn.init.constant_(layer.bias, bias_const)
    return layer


class ActorCritic(nn.Module):
    def __init__(self, n_obs, n_act):
        super().__init__()
        self.critic = nn.Sequential(
            layer_init(nn.Linear(n_obs, 64)),
            nn.Tanh(),
            layer_init(nn.Linear(64, 64)),
            nn.Tanh(),
            layer_init(nn.Linear(64, 1), std=1.0),
        )
        self.actor = nn.Sequential(
            layer_init(nn.Linear(n_obs, 64)),
            nn.Tanh(),
            layer_init(nn.Linear(64, 64)),
            nn.Tanh(),
            layer_init(nn.Linear(64, n_act), std=0.01),
        )

    def value(self, x):
        return self.critic(x).squeeze(-1)

    def act(self, x):
        dist = Categorical(logits=self.actor(x), validate_args=False)
        a = dist.sample()
        return a, dist.log_prob(a), self.value(x)

    def evaluate(self, x, a):
        dist = Categorical(logits=self.actor(x), validate_args=False)
        return dist.log_prob(a), dist.entropy(), self.value(x)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=8.0)
    ap.add_argument("--seed", type=int, default=0)
    cli = ap.parse_args()
    args = Args()
    np.random.seed(cli.seed)
    torch.manual_seed(cli.seed)
    torch.set_num_threads(1)

    envs = gym.vector.SyncVectorEnv([make_env(args.env_id, i) for i in range(args.num_envs)])
    n_obs = envs.single_observation_space.shape[0]
    agent = ActorCritic(n_obs, envs.single_action_space.n)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)

    T, N = args.num_steps, args.num_envs
    obs = torch.zeros((T, N, n_obs))
    actions = torch.zeros((T, N), dtype=torch.long)
    logprobs, rewards, dones, values = (torch.zeros((T, N)) for _ in range(4))

    global_step = 0
    returns_seen = []
    start = time.perf_counter()
    warm = None
    next_obs, _ = envs.reset(seed=cli.seed)
    next_obs = torch.from_numpy(next_obs)
    next_done = torch.zeros(N)
    while True:
        for t in range(T):
            obs[t] = next_obs
            dones[t] = next_done
            with torch.no_grad():
                action, logprob, value = agent.act(next_obs)
            actions[t], logprobs[t], values[t] = action, logprob, value
            o, r, term, trunc, infos = envs.step(action.numpy())
            global_step += N
            rewards[t] = torch.from_numpy(r).float()
            next_obs = torch.from_numpy(o)
            next_done = torch.from_numpy(np.logical_or(term, trunc)).float()
            if "episode" in infos:
                returns_seen.extend(infos["episode"]["r"][infos["_episode"]].tolist())

        with torch.no_grad():
            next_value = agent.value(next_obs)
            advantages = torch.zeros_like(rewards)
            lastgaelam = 0
            for t in reversed(range(T)):
                nonterminal = 1.0 - (next_done if t == T - 1 else dones[t + 1])
                nextvalues = next_value if t == T - 1 else values[t + 1]
                delta = rewards[t] + args.gamma * nextvalues * nonterminal - values[t]
                advantages[t] = lastgaelam = delta + args.gamma * args.gae_lambda * nonterminal * lastgaelam
            returns = advantages + values

        b_obs = obs.reshape(-1, n_obs)
        b_act, b_logp = actions.reshape(-1), logprobs.reshape(-1)
        b_adv, b_ret = advantages.reshape(-1), returns.reshape(-1)
        for _ in range(args.update_epochs):
            perm = torch.randperm(args.batch_size)
            for lo in range(0, args.batch_size, args.minibatch_size):
                mb = perm[lo : lo + args.minibatch_size]
                logp, entropy, v = agent.evaluate(b_obs[mb], b_act[mb])
                ratio = (logp - b_logp[mb]).exp()
                adv = b_adv[mb]
                adv = (adv - adv.mean()) / (adv.std() + 1e-8)
                pg = torch.max(-adv * ratio, -adv * ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)).mean()
                v_loss = 0.5 * (v - b_ret[mb]).pow(2).mean()
                loss = pg - args.ent_coef * entropy.mean() + args.vf_coef * v_loss
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
                optimizer.step()

        now = time.perf_counter()
        if warm is None:
            if now - start > 1.0:
                warm = (now, global_step)
        elif now - start > cli.seconds:
            break
    envs.close()
    print(f"mean return of the last 50 episodes: {np.mean(returns_seen[-50:]):.1f}")
    n, s = global_step - warm[1], now - warm[0]
    print(json.dumps({"env_steps": n, "seconds": round(s, 3), "env_steps_per_s": round(n / s, 1)}))


if __name__ == "__main__":
    main()
