"""Put spans into your own loop: record it, load it, print what it says.

python examples/own_loop.py
"""

import tempfile

import numpy as np

import hotloop
from hotloop import count, span


@span("env.step")
def step(state, action):
    return np.tanh(state + 0.1 * action), float(state.sum())


def train(steps):
    rng = np.random.default_rng(0)
    state, replay = np.zeros(8), []
    for _ in range(steps):
        with span("policy.act"):
            action = rng.normal(size=8)
        state, reward = step(state, action)
        count("env_steps")
        with span("replay.push"):
            replay.append((state, reward))
        if len(replay) >= 64:
            with span("replay.sample"):
                batch = np.array([replay[i][0] for i in rng.integers(len(replay), size=64)])
            with span("update.forward"):
                batch @ batch.T


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        with hotloop.record(f"{folder}/mine"):
            train(40_000)
        trace = hotloop.load(f"{folder}/mine")
        for node in sorted(trace.thread.nodes, key=lambda node: -node.self_ns)[:6]:
            print(f"{node.name:32} {node.phase:10} {node.self_ns / 1e6:8.1f} ms  {node.calls} calls")
        for finding in hotloop.explain(trace):
            print(finding.title)
