"""Moved to `hotloop.training.learn`. Learners took no loss in version 0.1: here they use that of their pipeline."""

from __future__ import annotations

from typing import Any

from hotloop.deprecated.forward import forward
from hotloop.training import learn
from hotloop.training.pipelines import dqn_mario, dqn_snake, ppo_ricochet, ppo_snake, sac_carracing

_forward = forward(__name__, "hotloop.training.learn")

_LOSSES = {
    "DQN": learn.QRule(dqn_snake.q_loss, dqn_snake.move_target, numba=True),
    "PPO": learn.PPORule(ppo_snake.ppo_loss, numba=True),
    "FrameDQN": learn.FrameQRule(dqn_mario.q_goal, dqn_mario.q_loss, dqn_mario.move_target),
    "SAC": learn.SACRule(**{name: getattr(sac_carracing, name) for name in learn.SACRule._fields}),
    "BoardPPO": ppo_ricochet.board_loss,
}


def __getattr__(name: str) -> Any:
    found, loss = _forward(name), _LOSSES.get(name)
    if loss is None:
        return found

    class Learner(found):
        def __init__(self, config: Any, **options: Any) -> None:
            super().__init__(config, loss, **options)

    return Learner
