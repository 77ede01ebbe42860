"""DQN on a side-scroller with two collector processes.

Each collector is the only writer of its own stripe of a replay in shared memory; there is no queue.
"""

import multiprocessing as mp
import time
from multiprocessing import shared_memory

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
STRIPE = CAPACITY // COLLECTORS
AHEAD = 256  # how far a collector may run ahead of the learner, and what is never sampled
FIELDS = np.dtype(
    [
        ("state", np.uint8, (4, 84, 84)),
        ("next_state", np.uint8, (4, 84, 84)),
        ("action", np.int64),
        ("reward", np.float32),
        ("done", np.float32),
    ]
)


class SharedReplay:
    """One block of shared memory: counters of steps written and taken, then a stripe a collector."""

    def __init__(self, block):
        self.block = block
        self.written = np.ndarray(COLLECTORS, np.int64, block.buf)
        self.taken = np.ndarray(COLLECTORS, np.int64, block.buf, offset=64)
        self.rows = np.ndarray((COLLECTORS, STRIPE), FIELDS, block.buf, offset=128)

    def sample(self, batch_size):
        """Rows already taken, without those that a collector may be writing over."""
        filled = np.minimum(self.taken, STRIPE - AHEAD)
        stripe = np.random.randint(0, COLLECTORS, batch_size)
        back = np.random.randint(0, filled[stripe])
        rows = self.rows
        i = (self.taken[stripe] - 1 - back) % STRIPE
        columns = ("state", "action", "reward", "next_state", "done")
        return tuple(torch.from_numpy(rows[name][stripe, i]) for name in columns)


def collect(replay, q, number, seed):
    """Play for ever and write each transition into this collector's stripe."""
    rng = np.random.default_rng(seed)
    env = RunnerEnv(seed)
    rows = replay.rows[number]
    state = env.reset()
    while True:
        while replay.written[number] - replay.taken[number] >= AHEAD:
            time.sleep(0.001)
        action = choose(q, state, rng, EPSILON)
        next_state, reward, done = env.step(action)
        rows[replay.written[number] % STRIPE] = (state, next_state, action, reward, done)
        replay.written[number] += 1
        state = env.reset() if done else next_state


def receive(replay):
    """Wait until the collectors are one update ahead, and take what they wrote."""
    share = STEPS_PER_UPDATE // COLLECTORS
    while (replay.written - replay.taken < share).any():
        time.sleep(0.0002)
    replay.taken += share


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    context = mp.get_context("fork")
    agent = DQN(RunnerEnv.actions)
    agent.q.share_memory()
    block = shared_memory.SharedMemory(create=True, size=128 + CAPACITY * FIELDS.itemsize)
    replay = SharedReplay(block)
    jobs = [(replay, agent.q, i, args.seed + i) for i in range(COLLECTORS)]
    workers = [context.Process(target=collect, args=job, daemon=True) for job in jobs]
    for worker in workers:
        worker.start()
    meter = Meter(args, WARMUP)
    while meter.more(STEPS_PER_UPDATE):
        receive(replay)
        agent.update(*replay.sample(BATCH))
    meter.report()
    for worker in workers:
        worker.terminate()
        worker.join()
    block.unlink()


if __name__ == "__main__":
    main()
