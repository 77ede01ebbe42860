"""SAC on Pendulum in one file, written with care: nothing here should be reported.

One environment, preallocated replay, one update a step, nothing read back from the tensors of an update.
"""

import copy

import gymnasium as gym
import numpy as np
import torch
from meter import Meter, parse_args
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)

BATCH = 256
CAPACITY = 100_000
LEARNING_STARTS = 300
WARMUP = 400
SCALE = 2.0  # Pendulum's torque lies in -2..2


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
        self.mean, self.log_std = nn.Linear(128, 1), nn.Linear(128, 1)

    def forward(self, states):
        h = self.body(states)
        mean, log_std = self.mean(h), self.log_std(h).clamp(-5, 2)
        noise = torch.randn_like(mean)
        action = torch.tanh(mean + log_std.exp() * noise)
        log_prob = -0.5 * noise.pow(2) - log_std - 0.919 - torch.log(1 - action.pow(2) + 1e-6)
        return SCALE * action, log_prob


def make_critic():
    return nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))


class ReplayBuffer:
    """A ring of transitions; a row is state, action, reward, next state, terminated."""

    def __init__(self, capacity):
        self.rows = np.zeros((capacity, 9), np.float32)
        self.capacity, self.position, self.size = capacity, 0, 0

    def push(self, state, action, reward, next_state, terminated):
        row = self.rows[self.position]
        row[:3], row[3], row[4], row[5:8], row[8] = state, action[0], reward, next_state, terminated
        self.position = (self.position + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def sample(self, batch_size):
        rows = torch.from_numpy(self.rows[np.random.randint(0, self.size, batch_size)])
        return rows.split((3, 1, 1, 3, 1), dim=1)


class SAC:
    def __init__(self):
        self.actor = Actor()
        self.critics = nn.ModuleList([make_critic(), make_critic()])
        self.targets = copy.deepcopy(self.critics)
        self.log_alpha = torch.zeros(1, requires_grad=True)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=3e-4)
        self.critic_opt = torch.optim.Adam(self.critics.parameters(), lr=1e-3)
        self.alpha_opt = torch.optim.Adam([self.log_alpha], lr=1e-3)

    @torch.no_grad()
    def act(self, state):
        return self.actor(torch.from_numpy(state)[None])[0][0].numpy()

    def update(self, states, actions, rewards, next_states, terminated):
        alpha = self.log_alpha.detach().exp()
        with torch.no_grad():
            next_actions, next_log_probs = self.actor(next_states)
            pairs = torch.cat((next_states, next_actions), 1)
            next_q = torch.min(*(target(pairs) for target in self.targets)) - alpha * next_log_probs
            target_q = rewards + 0.99 * (1 - terminated) * next_q
        pairs = torch.cat((states, actions), 1)
        critic_loss = sum(F.mse_loss(critic(pairs), target_q) for critic in self.critics)
        self.critic_opt.zero_grad()
        critic_loss.backward()
        self.critic_opt.step()

        new_actions, log_probs = self.actor(states)
        pairs = torch.cat((states, new_actions), 1)
        actor_loss = (alpha * log_probs - torch.min(*(critic(pairs) for critic in self.critics))).mean()
        self.actor_opt.zero_grad()
        actor_loss.backward(inputs=list(self.actor.parameters()))
        self.actor_opt.step()

        alpha_loss = -(self.log_alpha.exp() * (log_probs.detach() - 1.0)).mean()
        self.alpha_opt.zero_grad()
        alpha_loss.backward()
        self.alpha_opt.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(self.targets.parameters()), list(self.critics.parameters()), 0.005)


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    env = gym.make("Pendulum-v1")
    agent, replay = SAC(), ReplayBuffer(CAPACITY)
    meter = Meter(args, WARMUP)
    total_steps, returns, total = 0, [], 0.0
    state, _ = env.reset(seed=args.seed)
    while meter.more(1):
        action = agent.act(state)
        next_state, reward, terminated, truncated, _ = env.step(action)
        replay.push(state, action, reward, next_state, terminated)
        state, total, total_steps = next_state, total + float(reward), total_steps + 1
        if terminated or truncated:
            state, _ = env.reset()
            returns.append(total)
            total = 0.0
        if total_steps >= LEARNING_STARTS:
            agent.update(*replay.sample(BATCH))
    env.close()
    print(f"{len(returns)} episodes, last returns {[round(r) for r in returns[-3:]]}")
    meter.report()


if __name__ == "__main__":
    main()
