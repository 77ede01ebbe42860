# PPO, several lunar landers side by side. Follows the usual single-file layout.
import argparse, json, tempfile, time
import numpy as np
import gymnasium as gym
import torch
from torch import nn
from torch.distributions import Categorical
from torch.utils.tensorboard import SummaryWriter

N_ENV, T, EPOCHS, MB = 8, 64, 4, 128
GAMMA, LAM, CLIP, ENT, VF = 0.99, 0.95, 0.2, 0.01, 0.5


def ortho(layer, gain=np.sqrt(2)):
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


class ActorCritic(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.pi = nn.Sequential(ortho(nn.Linear(n_in, 96)), nn.Tanh(), ortho(nn.Linear(96, 96)), nn.Tanh(),
                                ortho(nn.Linear(96, n_out), 0.01))
        self.v = nn.Sequential(ortho(nn.Linear(n_in, 96)), nn.Tanh(), ortho(nn.Linear(96, 96)), nn.Tanh(),
                               ortho(nn.Linear(96, 1), 1.0))

    def value(self, x):
        return self.v(x).squeeze(-1)

    def policy(self, x):
        return Categorical(logits=self.pi(x), validate_args=False)


class RunningNorm:
    def __init__(self, n):
        self.mean, self.var, self.count = np.zeros(n), np.ones(n), 1e-4

    def __call__(self, x, learn=True):
        if learn:
            m, v, k = x.mean(0), x.var(0), len(x)
            d, tot = m - self.mean, self.count + k
            self.mean = self.mean + d * k / tot
            self.var = (self.var * self.count + v * k + d * d * self.count * k / tot) / tot
            self.count = tot
        return np.clip((x - self.mean) / np.sqrt(self.var + 1e-8), -10, 10).astype(np.float32)


def gae(rew, val, done, last_val):
    adv = torch.zeros_like(rew)
    run = torch.zeros(rew.shape[1])
    for i in range(T - 1, -1, -1):
        nv = last_val if i == T - 1 else val[i + 1]
        delta = rew[i] + GAMMA * nv * (1 - done[i]) - val[i]
        run = delta + GAMMA * LAM * (1 - done[i]) * run
        adv[i] = run
    return adv


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=float, default=10)
    p.add_argument("--seed", type=int, default=0)
    a = p.parse_args()
    np.random.seed(a.seed)
    torch.manual_seed(a.seed)
    torch.set_num_threads(1)

    envs = gym.vector.SyncVectorEnv([lambda: gym.make("LunarLander-v3") for _ in range(N_ENV)])
    n_obs = envs.single_observation_space.shape[0]
    n_act = int(envs.single_action_space.n)
    net = ActorCritic(n_obs, n_act)
    opt = torch.optim.Adam(net.parameters(), lr=1e-3, eps=1e-5)
    norm = RunningNorm(n_obs)
    tmp = tempfile.TemporaryDirectory()
    tb = SummaryWriter(tmp.name)

    B_obs = torch.zeros(T, N_ENV, n_obs)
    B_act = torch.zeros(T, N_ENV, dtype=torch.long)
    B_logp, B_rew, B_done, B_val = (torch.zeros(T, N_ENV) for _ in range(4))
    (net.policy(torch.zeros(4, n_obs)).logits.sum() + net.value(torch.zeros(4, n_obs)).sum()).backward()
    opt.zero_grad()

    w = np.zeros(10, dtype=np.int64)
    clk = time.perf_counter_ns
    calls, steps, updates, episodes = 0, 0, 0, 0
    ep_ret, recent = np.zeros(N_ENV), []
    begin = clk()
    end = begin + int(a.seconds * 1e9)

    c0 = clk()
    raw, _ = envs.reset(seed=a.seed)
    c1 = clk(); w[0] += c1 - c0
    x = torch.from_numpy(norm(raw))
    c0 = clk(); w[2] += c0 - c1
    going = True
    while going:
        # ---- rollout
        for t in range(T):
            with torch.no_grad():
                dist = net.policy(x)
                act = dist.sample()
                logp = dist.log_prob(act)
                val = net.value(x)
            cmd = act.numpy()
            c1 = clk(); w[1] += c1 - c0
            raw, rew, term, trunc, _ = envs.step(cmd)
            c0 = clk(); w[0] += c0 - c1
            done = np.logical_or(term, trunc)
            calls += 1
            steps += N_ENV
            ep_ret += rew
            if done.any():
                for i in np.flatnonzero(done):
                    recent.append(ep_ret[i])
                    ep_ret[i] = 0.0
                    episodes += 1
            rew = np.clip(rew * 0.1, -5, 5)
            c1 = clk(); w[9] += c1 - c0
            B_obs[t] = x
            B_act[t] = act
            B_logp[t] = logp
            B_val[t] = val
            B_rew[t] = torch.from_numpy(rew)
            B_done[t] = torch.from_numpy(done)
            c0 = clk(); w[3] += c0 - c1
            x = torch.from_numpy(norm(raw))
            c1 = clk(); w[2] += c1 - c0
            c0 = c1
            if c1 >= end:
                going = False
                break
        if not going:
            break
        # ---- learning
        with torch.no_grad():
            last = net.value(x)
        c1 = clk(); w[5] += c1 - c0
        adv = gae(B_rew, B_val, B_done, last)
        ret = adv + B_val
        f_obs, f_act, f_logp = B_obs.view(-1, n_obs), B_act.view(-1), B_logp.view(-1)
        f_adv, f_ret = adv.view(-1), ret.view(-1)
        c0 = clk(); w[9] += c0 - c1
        for _ in range(EPOCHS):
            perm = torch.randperm(T * N_ENV)
            for k in range(0, T * N_ENV, MB):
                j = perm[k:k + MB]
                o, ac, ol, ad, re = f_obs[j], f_act[j], f_logp[j], f_adv[j], f_ret[j]
                c1 = clk(); w[4] += c1 - c0
                dist = net.policy(o)
                ratio = (dist.log_prob(ac) - ol).exp()
                ad = (ad - ad.mean()) / (ad.std() + 1e-8)
                pg = -torch.min(ratio * ad, ratio.clamp(1 - CLIP, 1 + CLIP) * ad).mean()
                vl = 0.5 * (net.value(o) - re).pow(2).mean()
                ent = dist.entropy().mean()
                loss = pg + VF * vl - ENT * ent
                c0 = clk(); w[5] += c0 - c1
                opt.zero_grad()
                c1 = clk(); w[7] += c1 - c0
                loss.backward()
                c0 = clk(); w[6] += c0 - c1
                nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                opt.step()
                c1 = clk(); w[7] += c1 - c0
                updates += 1
                c0 = clk(); w[9] += c0 - c1
        mean_ret = float(np.mean(recent[-20:])) if recent else 0.0
        c1 = clk(); w[9] += c1 - c0
        tb.add_scalar("return", mean_ret, steps)
        tb.add_scalar("policy_loss", pg.item(), steps)
        tb.add_scalar("value_loss", vl.item(), steps)
        tb.add_scalar("entropy", ent.item(), steps)
        for name, q in net.named_parameters():
            if name.endswith("weight"):
                tb.add_histogram(name, q.detach().numpy(), steps)
        c0 = clk(); w[8] += c0 - c1
    took = (c0 - begin) / 1e9
    envs.close()
    tb.close()
    tmp.cleanup()
    names = ["env", "act", "observe", "store", "sample", "forward", "backward", "optimiser", "log", "own"]
    print(json.dumps(dict(env_steps=steps, updates=updates, episodes=episodes, seconds=took,
                          phases={n: int(v) / 1e9 for n, v in zip(names, w)}, calls_of_step=calls)))


main()
