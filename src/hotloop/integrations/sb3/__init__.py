"""For Stable-Baselines3: a callback that records the training, and a replay buffer that stores each frame once.

model = DQN("CnnPolicy", env, replay_buffer_class=FrameReplayBuffer)
model.learn(100_000, callback=HotloopCallback())
"""

from __future__ import annotations

from hotloop.integrations.sb3.callback import HotloopCallback
from hotloop.integrations.sb3.replay import FrameReplayBuffer

__all__ = ["FrameReplayBuffer", "HotloopCallback"]
