"""An ordinary Stable-Baselines3 script. It knows nothing of hotloop.

hotloop run examples/sb3_unmodified.py
hotloop explain
"""

from stable_baselines3 import DQN

if __name__ == "__main__":
    model = DQN("MlpPolicy", "CartPole-v1", learning_starts=500, device="cpu", verbose=0)
    model.learn(4_000)
