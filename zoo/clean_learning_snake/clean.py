"""DQN on 64 games of Snake, written with care: nothing here should be reported.

Games grow longer as the agent learns, and updates begin when there is something to learn from. Neither is a fault.
"""

import numpy as np
import torch
from dqn import DQN
from meter import Meter, parse_args
from snake import VectorSnake

torch.set_num_threads(1)

NUM_ENVS = 64
SIZE = 10
BATCH = 128
CAPACITY = 100_000
LEARNING_STARTS = 100_000
EXPLORING_STEPS = 250_000
WARMUP = 100 * NUM_ENVS


class ReplayBuffer:
    """A ring of transitions in preallocated arrays."""

    def __init__(self):
        self.states = np.zeros((CAPACITY, 10), np.float32)
        self.next_states = np.zeros((CAPACITY, 10), np.float32)
        self.actions = np.zeros(CAPACITY, np.int64)
        self.rewards = np.zeros(CAPACITY, np.float32)
        self.dones = np.zeros(CAPACITY, np.float32)
        self.position, self.size = 0, 0

    def push(self, states, actions, rewards, next_states, dones):
        i = (self.position + np.arange(len(states))) % CAPACITY
        self.states[i], self.actions[i], self.rewards[i] = states, actions, rewards
        self.next_states[i], self.dones[i] = next_states, dones
        self.position = (self.position + len(i)) % CAPACITY
        self.size = min(self.size + len(i), CAPACITY)

    def sample(self, batch_size):
        i = np.random.randint(0, self.size, batch_size)
        columns = (self.states, self.actions, self.rewards, self.next_states, self.dones)
        return tuple(torch.from_numpy(column[i]) for column in columns)


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    env = VectorSnake(NUM_ENVS, SIZE, seed=args.seed)
    agent, replay = DQN(inputs=10, actions=3), ReplayBuffer()
    meter = Meter(args, WARMUP)
    steps = 0
    states = env.reset()
    while meter.more(NUM_ENVS):
        actions = agent.act(states, max(0.01, 1 - steps / EXPLORING_STEPS))
        next_states, rewards, dones = env.step(actions)
        replay.push(states.numpy(), actions.numpy(), rewards.numpy(), next_states.numpy(), dones.numpy())
        states = next_states
        steps += NUM_ENVS
        if steps >= LEARNING_STARTS:
            agent.update(*replay.sample(BATCH))
    print(f"{int(env.episodes)} episodes, {steps / max(1, int(env.episodes)):.1f} steps an episode")
    meter.report()


if __name__ == "__main__":
    main()
