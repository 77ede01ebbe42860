# Soft actor-critic on BipedalWalker-v3, functions only.
import argparse, json, random, time
from collections import deque

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

GAMMA, TAU, LR, BATCH, HID = 0.99, 0.005, 1e-3, 256, 64
START, POLICY_EVERY = 600, 2


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, HID), nn.ReLU(), nn.Linear(HID, HID), nn.ReLU(), nn.Linear(HID, o))


def build(obs_dim, act_dim):
    nets = {"pi": mlp(obs_dim, 2 * act_dim), "q1": mlp(obs_dim + act_dim, 1), "q2": mlp(obs_dim + act_dim, 1)}
    nets["t1"], nets["t2"] = mlp(obs_dim + act_dim, 1), mlp(obs_dim + act_dim, 1)
    nets["t1"].load_state_dict(nets["q1"].state_dict())
    nets["t2"].load_state_dict(nets["q2"].state_dict())
    for k in ("t1", "t2"):
        nets[k].requires_grad_(False)
    log_alpha = torch.zeros(1, requires_grad=True)
    critic_params = list(nets["q1"].parameters()) + list(nets["q2"].parameters())
    opts = {
        "pi": torch.optim.Adam(nets["pi"].parameters(), lr=LR, fused=True),
        "q": torch.optim.Adam(critic_params, lr=LR, fused=True),
        "alpha": torch.optim.Adam([log_alpha], lr=LR),
    }
    return nets, log_alpha, opts, critic_params


def policy(net, o):
    mu, log_std = net(o).chunk(2, -1)
    log_std = log_std.clamp(-5, 2)
    noise = torch.randn_like(mu)
    u = mu + log_std.exp() * noise
    a = torch.tanh(u)
    logp = (-0.5 * noise.pow(2) - log_std - 0.9189385 - 2 * (0.6931472 - u - F.softplus(-2 * u))).sum(-1, keepdim=True)
    return a, logp


def draw(memory, k):
    batch = random.sample(memory, k)
    obs = torch.from_numpy(np.array([b[0] for b in batch], dtype=np.float32))
    act = torch.from_numpy(np.array([b[1] for b in batch], dtype=np.float32))
    rew = torch.from_numpy(np.array([b[2] for b in batch], dtype=np.float32)).unsqueeze(1)
    nxt = torch.from_numpy(np.array([b[3] for b in batch], dtype=np.float32))
    end = torch.from_numpy(np.array([b[4] for b in batch], dtype=np.float32)).unsqueeze(1)
    return obs, act, rew, nxt, end


def train_step(k, memory, nets, log_alpha, opts, critic_params, target_entropy):
    obs, act, rew, nxt, end = draw(memory, BATCH)
    alpha = log_alpha.detach().exp()
    with torch.no_grad():
        a2, lp2 = policy(nets["pi"], nxt)
        x2 = torch.cat([nxt, a2], 1)
        y = rew + GAMMA * (1 - end) * (torch.min(nets["t1"](x2), nets["t2"](x2)) - alpha * lp2)
    x = torch.cat([obs, act], 1)
    q_loss = F.mse_loss(nets["q1"](x), y) + F.mse_loss(nets["q2"](x), y)
    opts["q"].zero_grad()
    q_loss.backward()
    opts["q"].step()

    if k % POLICY_EVERY == 0:
        for p in critic_params:
            p.requires_grad_(False)
        a, lp = policy(nets["pi"], obs)
        xa = torch.cat([obs, a], 1)
        pi_loss = (alpha * lp - torch.min(nets["q1"](xa), nets["q2"](xa))).mean()
        opts["pi"].zero_grad()
        pi_loss.backward()
        opts["pi"].step()
        for p in critic_params:
            p.requires_grad_(True)

        a_loss = -(log_alpha * (lp.detach() + target_entropy)).mean()
        opts["alpha"].zero_grad()
        a_loss.backward()
        opts["alpha"].step()

    with torch.no_grad():
        src = [p.data for p in critic_params]
        dst = [p.data for k in ("t1", "t2") for p in nets[k].parameters()]
        torch._foreach_lerp_(dst, src, TAU)


def run(seconds, seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    env = gym.make("BipedalWalker-v3")
    obs_dim, act_dim = env.observation_space.shape[0], env.action_space.shape[0]
    high = float(env.action_space.high[0])
    nets, log_alpha, opts, critic_params = build(obs_dim, act_dim)
    memory = deque(maxlen=100_000)
    env.action_space.seed(seed)
    o, _ = env.reset(seed=seed)
    steps, updates, ret, history = 0, 0, 0.0, []
    t_begin = time.time()
    t_mark, s_mark = None, 0
    while time.time() - t_begin < seconds:
        if steps < START:
            a = np.random.uniform(-1, 1, act_dim).astype(np.float32)
        else:
            with torch.no_grad():
                a = policy(nets["pi"], torch.from_numpy(o).unsqueeze(0))[0][0].numpy()
        o2, r, term, trunc, _ = env.step(a * high)
        memory.append((o, a, r, o2, float(term)))
        o = o2
        ret += r
        steps += 1
        if trunc or term:
            history.append(ret)
            ret = 0.0
            o, _ = env.reset()
        if steps >= START:
            updates += 1
            train_step(updates, memory, nets, log_alpha, opts, critic_params, -float(act_dim))
            if updates == 30:
                t_mark, s_mark = time.time(), steps
    span = time.time() - t_mark
    print("mean of last returns:", round(float(np.mean(history[-5:])), 1))
    print(json.dumps({"env_steps": steps - s_mark, "seconds": span, "env_steps_per_s": (steps - s_mark) / span, "updates": updates}))


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=20.0)
    ap.add_argument("--seed", type=int, default=0)
    a = ap.parse_args()
    run(a.seconds, a.seed)
