"""TD3 with an ensemble of four small critics on Pendulum.

The target networks follow in one call for all parameters.
"""

import copy

import gymnasium as gym
import numpy as np
import torch
from meter import Meter, parse_args
from torch import nn

torch.set_num_threads(1)

BATCH, CAPACITY, LEARNING_STARTS, WARMUP = 64, 50_000, 200, 300
CRITICS, TAU, SCALE = 4, 0.005, 2.0


def mlp(inputs):
    layers = [nn.Linear(inputs, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 32), nn.LayerNorm(32), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(32, 1))


class ReplayBuffer:
    """A ring of transitions; a row is state, action, reward, next state, terminated."""

    def __init__(self, capacity):
        self.rows = np.zeros((capacity, 9), np.float32)
        self.capacity, self.position, self.size = capacity, 0, 0

    def push(self, state, action, reward, next_state, terminated):
        row = self.rows[self.position]
        row[:3], row[3], row[4], row[5:8], row[8] = state, action, reward, next_state, terminated
        self.position = (self.position + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def sample(self, batch_size):
        rows = torch.from_numpy(self.rows[np.random.randint(0, self.size, batch_size)])
        return rows.split((3, 1, 1, 3, 1), dim=1)


class TD3:
    def __init__(self):
        self.actor = mlp(3)
        self.critics = nn.ModuleList([mlp(4) for _ in range(CRITICS)])
        self.actor_target, self.critics_target = copy.deepcopy(self.actor), copy.deepcopy(self.critics)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=1e-3, fused=True)
        self.critic_opt = torch.optim.Adam(self.critics.parameters(), lr=1e-3, fused=True)
        self.online = [*self.critics.parameters(), *self.actor.parameters()]
        self.slow = [*self.critics_target.parameters(), *self.actor_target.parameters()]
        self.updates = 0

    @torch.no_grad()
    def act(self, state):
        action = SCALE * torch.tanh(self.actor(torch.from_numpy(state)[None]))[0]
        return (action + 0.2 * torch.randn(1)).clamp(-SCALE, SCALE).numpy()

    def update(self, states, actions, rewards, next_states, terminated):
        with torch.no_grad():
            noise = (0.4 * torch.randn_like(actions)).clamp(-1, 1)
            next_actions = (SCALE * torch.tanh(self.actor_target(next_states)) + noise).clamp(-SCALE, SCALE)
            pairs = torch.cat((next_states, next_actions), 1)
            next_q = torch.stack([critic(pairs) for critic in self.critics_target]).amin(0)
            target = rewards + 0.99 * (1 - terminated) * next_q
        pairs = torch.cat((states, actions), 1)
        q = torch.stack([critic(pairs) for critic in self.critics])
        loss = (q - target).pow(2).mean()
        self.critic_opt.zero_grad()
        loss.backward()
        self.critic_opt.step()
        self.updates += 1
        if self.updates % 4 == 0:
            actor_loss = -self.critics[0](torch.cat((states, SCALE * torch.tanh(self.actor(states))), 1)).mean()
            self.actor_opt.zero_grad()
            actor_loss.backward(inputs=list(self.actor.parameters()))
            self.actor_opt.step()
        self.follow()

    @torch.no_grad()
    def follow(self):
        torch._foreach_lerp_(self.slow, self.online, TAU)


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    env = gym.make("Pendulum-v1")
    agent, replay = TD3(), ReplayBuffer(CAPACITY)
    meter = Meter(args, WARMUP)
    total_steps = 0
    state, _ = env.reset(seed=args.seed)
    while meter.more(1):
        action = agent.act(state)
        next_state, reward, terminated, truncated, _ = env.step(action)
        replay.push(state, action[0], reward, next_state, terminated)
        state, total_steps = next_state, total_steps + 1
        if terminated or truncated:
            state, _ = env.reset()
        if total_steps >= LEARNING_STARTS:
            agent.update(*replay.sample(BATCH))
    env.close()
    meter.report()


if __name__ == "__main__":
    main()
