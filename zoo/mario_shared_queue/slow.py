"""DQN on a side-scroller with two collector processes.

Every transition goes through one queue that all collectors and the learner share.
"""

import multiprocessing as mp

import numpy as np
import torch
from dqn import DQN, choose
from meter import Meter, parse_args
from runner import RunnerEnv

torch.set_num_threads(1)

COLLECTORS = 2
CAPACITY = 4096
BATCH = 64
STEPS_PER_UPDATE = 32
EPSILON = 0.9
WARMUP = CAPACITY // 2


def collect(queue, q, seed):
    """Play for ever and put each transition into the shared queue."""
    rng = np.random.default_rng(seed)
    env = RunnerEnv(seed)
    state = env.reset()
    while True:
        action = choose(q, state, rng, EPSILON)
        next_state, reward, done = env.step(action)
        queue.put((state, action, reward, next_state, done))
        state = env.reset() if done else next_state


class ReplayBuffer:
    """A ring of transitions as bytes in preallocated arrays."""

    def __init__(self, capacity):
        self.states = np.zeros((capacity, 4, 84, 84), np.uint8)
        self.next_states = np.zeros((capacity, 4, 84, 84), np.uint8)
        self.actions = np.zeros(capacity, np.int64)
        self.rewards = np.zeros(capacity, np.float32)
        self.dones = np.zeros(capacity, np.float32)
        self.capacity, self.position, self.size = capacity, 0, 0

    def push(self, state, action, reward, next_state, done):
        i = self.position
        self.states[i] = state
        self.actions[i] = action
        self.rewards[i] = reward
        self.next_states[i] = next_state
        self.dones[i] = done
        self.position = (i + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def sample(self, batch_size):
        i = np.random.randint(0, self.size, batch_size)
        columns = (self.states, self.actions, self.rewards, self.next_states, self.dones)
        return tuple(torch.from_numpy(column[i]) for column in columns)


def receive(queue, replay):
    """Take the transitions of one update out of the queue."""
    for _ in range(STEPS_PER_UPDATE):
        replay.push(*queue.get())


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    context = mp.get_context("fork")
    agent = DQN(RunnerEnv.actions)
    agent.q.share_memory()
    queue = context.Queue(maxsize=256)
    seeds = [args.seed + i for i in range(COLLECTORS)]
    workers = [context.Process(target=collect, args=(queue, agent.q, seed), daemon=True) for seed in seeds]
    for worker in workers:
        worker.start()
    replay = ReplayBuffer(CAPACITY)
    meter = Meter(args, WARMUP)
    while meter.more(STEPS_PER_UPDATE):
        receive(queue, replay)
        agent.update(*replay.sample(BATCH))
    meter.report()
    for worker in workers:
        worker.terminate()
        worker.join()


if __name__ == "__main__":
    main()
