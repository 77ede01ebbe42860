"""A Stable-Baselines3 script that records itself: the time of each phase in SB3's own log, findings at the end.

python examples/sb3_callback.py
"""

import tempfile

from stable_baselines3 import DQN

import hotloop
from hotloop.integrations.sb3 import HotloopCallback

if __name__ == "__main__":
    model = DQN("MlpPolicy", "CartPole-v1", learning_starts=500, device="cpu", verbose=1)
    with tempfile.TemporaryDirectory() as folder:
        callback = HotloopCallback(f"{folder}/dqn", log_every=500, summary_every=1_000)
        model.learn(4_000, callback=callback, log_interval=50)
        trace = hotloop.load(callback.path)  # in a notebook, the last line of a cell shows it
        print(f"\n{trace}")
        for finding in hotloop.explain(trace):
            print(f"expect {finding.gain:.2f}×: {finding.title}")
