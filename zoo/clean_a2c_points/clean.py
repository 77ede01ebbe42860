"""A2C on 64 points that are pushed to a goal, written with care: nothing here should be reported.

All environments are stepped at once in numpy, the rollout is preallocated, advantages go back over vectors.
"""

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from meter import Meter, parse_args
from torch import nn

torch.set_num_threads(1)

NUM_ENVS = 64
STEPS = 16
GAMMA, LAMBDA = 0.98, 0.95
WARMUP = 50 * NUM_ENVS * STEPS


class Points(VectorEnv):
    """Points in the plane with a velocity; four pushes or none; an episode ends near the goal or after 100 steps."""

    pushes = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]], np.float32)

    def __init__(self, num_envs):
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.single_observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.single_action_space = gym.spaces.Discrete(5)
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, num_envs)
        self.state = np.zeros((num_envs, 4), np.float32)
        self.age = np.zeros(num_envs, np.int64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._begin(np.ones(self.num_envs, bool))
        return self.state.copy(), {}

    def _begin(self, which):
        self.state[which] = self.np_random.uniform(-1, 1, (which.sum(), 4))
        self.state[which, 2:] = 0
        self.age[which] = 0

    def step(self, actions):
        self.state[:, 2:] = 0.9 * self.state[:, 2:] + 0.05 * self.pushes[actions]
        self.state[:, :2] += self.state[:, 2:]
        self.age += 1
        far = np.square(self.state[:, :2]).sum(1)
        terminated, truncated = far < 0.01, self.age >= 100
        reward = np.where(terminated, 1.0, -0.05 * far).astype(np.float32)
        over = terminated | truncated
        if over.any():
            self._begin(over)
        return self.state.copy(), reward, terminated, truncated, {}


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh())
        self.head = nn.Linear(128, 6)

    def forward(self, states):
        out = self.head(self.body(states))
        return out[..., :5], out[..., 5]


def advantages(rewards, values, last, over):
    """Generalised advantages of a rollout [T, N], from the last step back."""
    found, running = torch.empty_like(rewards), torch.zeros(rewards.shape[1])
    following = torch.cat((values[1:], last[None]))
    deltas = rewards + GAMMA * following * (1 - over) - values
    for t in range(len(rewards) - 1, -1, -1):
        running = deltas[t] + GAMMA * LAMBDA * (1 - over[t]) * running
        found[t] = running
    return found


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    env, agent = Points(NUM_ENVS), Agent()
    optimiser = torch.optim.Adam(agent.parameters(), lr=1e-3, fused=True)
    states = torch.zeros(STEPS, NUM_ENVS, 4)
    actions = torch.zeros(STEPS, NUM_ENVS, dtype=torch.int64)
    rewards, over = torch.zeros(STEPS, NUM_ENVS), torch.zeros(STEPS, NUM_ENVS)
    meter = Meter(args, WARMUP)
    state = torch.from_numpy(env.reset(seed=args.seed)[0])
    going = True
    while going:
        for t in range(STEPS):
            with torch.no_grad():
                logits, _ = agent(state)
                action = (logits - torch.empty_like(logits).exponential_().log()).argmax(1)
            states[t], actions[t] = state, action
            following, reward, terminated, truncated, _ = env.step(action.numpy())
            rewards[t] = torch.from_numpy(reward)
            over[t] = torch.from_numpy(terminated | truncated)
            state = torch.from_numpy(following)
            going = meter.more(NUM_ENVS) and going
        logits, values = agent(torch.cat((states, state[None])))
        gained = advantages(rewards, values[:-1].detach(), values[-1].detach(), over)
        log_probs = logits[:-1].log_softmax(-1)
        chosen = log_probs.gather(-1, actions[..., None])[..., 0]
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        value_loss = (gained + values[:-1].detach() - values[:-1]).square()
        loss = (0.5 * value_loss - gained * chosen - 0.01 * entropy).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    meter.report()


if __name__ == "__main__":
    main()
