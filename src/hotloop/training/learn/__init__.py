"""Learners: pure maths, networks, and kernels that compute the same numbers at different speeds."""

from hotloop.training.learn.dqn.learner import DQN, KERNELS
from hotloop.training.learn.dqn.state import DQNConfig, QNetworks, QRows, QRule, Transitions, Updated
from hotloop.training.learn.frame_dqn.learner import FRAME_KERNELS, FrameDQN
from hotloop.training.learn.frame_dqn.state import FrameDQNConfig, FrameQRule, FrameQShape
from hotloop.training.learn.kernel_choice import Choice, choose_kernel
from hotloop.training.learn.networks import QShape
from hotloop.training.learn.ppo.learner import PPO, PPO_KERNELS, Acted
from hotloop.training.learn.ppo.state import PPOConfig, PPORows, PPORule, PPOUpdated, Rollout
from hotloop.training.learn.returns import gae
from hotloop.training.learn.ricochet_ppo.learner import BoardPPO, BoardPPOConfig, Sequences
from hotloop.training.learn.ricochet_ppo.shape import BoardShape
from hotloop.training.learn.sac.learner import SAC, SAC_KERNELS
from hotloop.training.learn.sac.networks import SACShape
from hotloop.training.learn.sac.state import SACConfig, SACRule, SACUpdated

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
    "FrameQRule",
    "FrameQShape",
    "PPOConfig",
    "PPORows",
    "PPORule",
    "PPOUpdated",
    "QNetworks",
    "QRows",
    "QRule",
    "QShape",
    "Rollout",
    "SACConfig",
    "SACRule",
    "SACShape",
    "SACUpdated",
    "Sequences",
    "Transitions",
    "Updated",
    "choose_kernel",
    "gae",
]
