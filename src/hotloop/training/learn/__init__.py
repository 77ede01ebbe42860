"""Learners: pure maths, networks, and kernels that compute the same numbers at different speeds."""

from hotloop.training.learn.dqn.learner import DQN, KERNELS, DQNConfig, Transitions, Updated, supported_kernels
from hotloop.training.learn.frame_dqn.learner import (
    FRAME_KERNELS,
    FrameDQN,
    FrameDQNConfig,
    FrameQShape,
    supported_frame_kernels,
)
from hotloop.training.learn.kernel_choice import Choice, choose_kernel
from hotloop.training.learn.networks import QShape
from hotloop.training.learn.ppo.learner import (
    PPO,
    PPO_KERNELS,
    Acted,
    PPOConfig,
    PPOUpdated,
    Rollout,
    supported_ppo_kernels,
)
from hotloop.training.learn.returns import gae
from hotloop.training.learn.ricochet_ppo.learner import BoardPPO, BoardPPOConfig, Sequences
from hotloop.training.learn.ricochet_ppo.shape import BoardShape
from hotloop.training.learn.sac.learner import SAC, SAC_KERNELS, SACConfig, SACShape, SACUpdated, supported_sac_kernels

__all__ = [
    "DQN",
    "FRAME_KERNELS",
    "KERNELS",
    "PPO",
    "PPO_KERNELS",
    "SAC",
    "SAC_KERNELS",
    "Acted",
    "BoardPPO",
    "BoardPPOConfig",
    "BoardShape",
    "Choice",
    "DQNConfig",
    "FrameDQN",
    "FrameDQNConfig",
    "FrameQShape",
    "PPOConfig",
    "PPOUpdated",
    "QShape",
    "Rollout",
    "SACConfig",
    "SACShape",
    "SACUpdated",
    "Sequences",
    "Transitions",
    "Updated",
    "choose_kernel",
    "gae",
    "supported_frame_kernels",
    "supported_kernels",
    "supported_ppo_kernels",
    "supported_sac_kernels",
]
