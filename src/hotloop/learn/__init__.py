"""Learners: pure maths, networks, and kernels that give the same numbers at different speeds."""

from hotloop.learn.board_ppo import BoardPPO, BoardPPOConfig, Sequences
from hotloop.learn.board_shape import BoardShape
from hotloop.learn.choose import Choice, choose_kernel
from hotloop.learn.dqn import DQN, KERNELS, DQNConfig, Transitions, Updated, supported_kernels
from hotloop.learn.frame_dqn import FRAME_KERNELS, FrameDQN, FrameDQNConfig, FrameQShape, supported_frame_kernels
from hotloop.learn.networks import QShape
from hotloop.learn.ppo import PPO, PPO_KERNELS, Acted, PPOConfig, PPOUpdated, Rollout, supported_ppo_kernels
from hotloop.learn.returns import gae
from hotloop.learn.sac import SAC, SAC_KERNELS, SACConfig, SACShape, SACUpdated, supported_sac_kernels

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
