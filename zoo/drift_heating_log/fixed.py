"""DQN heats a building: keep it warm with little energy, in steps of half an hour.

The energy used and the comfort so far are two sums, kept up to date.
"""

import math

import numpy as np
import torch
from dqn import DQN
from meter import Meter, parse_args

torch.set_num_threads(1)

STEPS_A_DAY = 48
DAYS = 7
BATCH = 64
CAPACITY = 50_000
LEARNING_STARTS = 2_000
WARMUP = 500


class Building:
    """One room with a heat pump of four levels and weather of its own."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.steps, self.powers, self.warm_steps = 0, 0.0, 0

    def reset(self):
        self.time, self.indoor, self.outdoor = 0, 20.0, 5.0
        return self.observe()

    def observe(self):
        angle = 2 * math.pi * self.time / STEPS_A_DAY
        return np.array([(self.indoor - 21) / 5, self.outdoor / 20, math.sin(angle), math.cos(angle)], np.float32)

    def step(self, action):
        self.time += 1
        wave = 4 * math.sin(2 * math.pi * self.time / STEPS_A_DAY - 2)
        self.outdoor += 0.2 * (5 + wave - self.outdoor) + 0.3 * self.rng.standard_normal()
        power = 1.5 * action
        self.indoor += 0.05 * (self.outdoor - self.indoor) + 0.45 * power
        self.steps += 1
        self.powers += power
        self.warm_steps += 20 <= self.indoor <= 24
        reward = -abs(self.indoor - 21.5) - 0.1 * power
        return self.observe(), reward, False, self.time >= DAYS * STEPS_A_DAY, self.report()

    def report(self):
        """Energy in kWh and the share of the time in which it was warm enough."""
        return {"energy": self.powers / 2, "warm": self.warm_steps / self.steps}


class ReplayBuffer:
    """A ring of transitions in preallocated arrays."""

    def __init__(self):
        self.states = np.zeros((CAPACITY, 4), np.float32)
        self.next_states = np.zeros((CAPACITY, 4), np.float32)
        self.actions = np.zeros(CAPACITY, np.int64)
        self.rewards = np.zeros(CAPACITY, np.float32)
        self.dones = np.zeros(CAPACITY, np.float32)
        self.position, self.size = 0, 0

    def push(self, state, action, reward, next_state, done):
        i = self.position
        self.states[i], self.actions[i], self.rewards[i] = state, action, reward
        self.next_states[i], self.dones[i] = next_state, done
        self.position = (self.position + 1) % CAPACITY
        self.size = min(self.size + 1, CAPACITY)

    def sample(self, batch_size):
        i = np.random.randint(0, self.size, batch_size)
        columns = (self.states, self.actions, self.rewards, self.next_states, self.dones)
        return tuple(torch.from_numpy(column[i]) for column in columns)


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    env, agent, replay = Building(args.seed), DQN(inputs=4, actions=4, hidden=64), ReplayBuffer()
    meter = Meter(args, WARMUP)
    steps, info = 0, {}
    state = env.reset()
    while meter.more(1):
        epsilon = max(0.05, 1 - steps / 5_000)
        action = int(agent.act(torch.from_numpy(state)[None], epsilon))
        next_state, reward, terminated, truncated, info = env.step(action)
        replay.push(state, action, reward, next_state, float(terminated))
        state = env.reset() if terminated or truncated else next_state
        steps += 1
        if steps >= LEARNING_STARTS:
            agent.update(*replay.sample(BATCH))
    print(f"{info['energy']:.0f} kWh, warm enough in {100 * info['warm']:.0f} % of the time")
    meter.report()


if __name__ == "__main__":
    main()
