"""PPO's update in torch: the reference that the fused kernel must agree with."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hotloop.training.learn.learner import F32
from hotloop.training.learn.ppo.state import ADAM_EPS, PPORows, PPOState, Rollout


class Plain:
    """The reference: one operation after the other."""

    def __init__(self, state: PPOState) -> None:
        self.state = state
        config, network = state.config, state.network
        groups = [
            {"params": list(network.policy.parameters()), "lr": config.policy_lr},
            {"params": list(network.value.parameters()), "lr": config.value_lr},
        ]
        self.optimiser = torch.optim.Adam(groups, eps=ADAM_EPS)
        state.flat.set_moments(self.optimiser, state.updates)

    def update(self, rollout: Rollout, order: NDArray[np.int64]) -> F32:
        """Do one update with each row of `order` `[U, minibatch]`, which holds indices into the rollout.

        Returns:
            `[U, 5]`: the numbers of `PPOUpdated` for each update.
        """
        state, config = self.state, self.state.config
        arrays = (rollout.obs, rollout.action, rollout.log_prob, rollout.advantage, rollout.returns)
        tensors = [torch.from_numpy(np.ascontiguousarray(array)).to(state.device) for array in arrays]
        metrics = []
        for rows in torch.from_numpy(order).to(state.device):
            loss, losses = state.rule.loss(config, state.network, PPORows(*(tensor[rows] for tensor in tensors)))
            self.optimiser.zero_grad()
            loss.backward()
            if config.max_grad_norm:
                nn.utils.clip_grad_norm_(state.network.parameters(), config.max_grad_norm)
            self.optimiser.step()
            state.updates += 1
            metrics.append(torch.stack(losses).detach())
        return torch.stack(metrics).cpu().numpy()  # host sync

    @torch.no_grad()
    def evaluate(self, obs: NDArray) -> tuple[F32, F32]:
        """Logits `[N, A]` and values `[N]`."""
        logits, value = self.state.network(torch.from_numpy(np.ascontiguousarray(obs)).to(self.state.device))
        return logits.cpu().numpy(), value.cpu().numpy()
