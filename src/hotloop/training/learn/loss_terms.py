"""Losses and targets as pure functions of tensors: the equation, the shapes, a short body."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


def huber(error: Tensor) -> Tensor:
    """Huber's loss with threshold 1, elementwise: `e²/2` where `|e| < 1`, else `|e| − 1/2`."""
    size = error.abs()
    return torch.where(size < 1, 0.5 * error * error, size - 0.5)


def q_target(reward: Tensor, discount: Tensor, target_q: Tensor, chooser_q: Tensor) -> Tensor:
    """One-step (or n-step) target `r + d · Q⁻(s', argmax_a Q(s', a))`.

    If `chooser_q` comes from the online network, this is double Q-learning (van Hasselt et al., 2016). If it comes
    from the target network, this is plain Q-learning.

    Args:
        reward: `[B]`, summed over the n steps where n > 1.
        discount: `[B]`, γⁿ, and 0 where the episode terminated.
        target_q: `[B, A]`, of the target network at s'.
        chooser_q: `[B, A]`, of the network that chooses the action at s'.
    """
    assert reward.shape == discount.shape == target_q.shape[:1] and target_q.shape == chooser_q.shape
    best = chooser_q.argmax(dim=1, keepdim=True)
    return reward + discount * target_q.gather(1, best).squeeze(1)


def project(probability: Tensor, reward: Tensor, discount: Tensor, support: Tensor) -> Tensor:
    """Project the distribution of `r + d · z` back onto the atoms z (Bellemare et al., 2017).

    The probability of each moved atom is split between its two neighbours, in proportion to how close it is to each.

    Args:
        probability: `[B, Z]` of the atoms at s'.
        reward: `[B]`.
        discount: `[B]`, 0 where the episode terminated.
        support: `[Z]`, evenly spaced.

    Returns:
        `[B, Z]`; the sum of each row is that of `probability`.
    """
    assert probability.shape == (len(reward), len(support)) and reward.shape == discount.shape
    width = (support[-1] - support[0]) / (len(support) - 1)
    moved = (reward[:, None] + discount[:, None] * support).clamp(support[0], support[-1])
    position = ((moved - support[0]) / width).clamp(0, len(support) - 1)
    # Distance of each moved atom j from each atom i, in widths: the share is 1 − distance, if that is positive.
    steps = torch.arange(len(support), dtype=position.dtype, device=position.device)
    share = (1 - (position[:, None, :] - steps[None, :, None]).abs()).clamp(min=0)
    return (share * probability[:, None, :]).sum(dim=2)


def cross_entropy(logits: Tensor, goal: Tensor) -> Tensor:
    """Cross entropy `−Σ_i goal_i · log softmax(logits)_i` of rows `[B, Z]`: `[B]`."""
    assert logits.shape == goal.shape
    return -(goal * logits.log_softmax(dim=1)).sum(dim=1)


class PPOLosses(NamedTuple):
    """The parts of PPO's loss, and two measures of how far the policy moved; means over a minibatch."""

    policy: Tensor
    value: Tensor
    entropy: Tensor
    kl: Tensor
    clip_fraction: Tensor


def ppo_losses(logits: Tensor, value: Tensor, old: tuple[Tensor, Tensor, Tensor, Tensor], clip: float) -> PPOLosses:
    """Clipped surrogate, squared value error and entropy (Schulman et al., 2017).

    `ρ = π(a|s) / π_old(a|s)`, policy `−mean min(ρ A, clamp(ρ, 1 − c, 1 + c) A)`, value `mean (V − R)²`,
    entropy `−mean Σ π log π`, and the estimate `mean (ρ − 1) − log ρ` of the KL divergence.

    Args:
        logits: `[B, A]`.
        value: `[B]`.
        old: action, log-probability, advantage and return, each `[B]`, from the rollout.
        clip: c.
    """
    action, old_log_prob, advantage, goal = old
    assert value.shape == action.shape == old_log_prob.shape == advantage.shape == goal.shape
    log_policy = logits.log_softmax(dim=1)
    log_ratio = log_policy.gather(1, action[:, None]).squeeze(1) - old_log_prob
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - clip, 1 + clip)
    return PPOLosses(
        policy=-torch.minimum(ratio * advantage, clipped * advantage).mean(),
        value=(value - goal).square().mean(),
        entropy=-(log_policy.exp() * log_policy).sum(dim=1).mean(),
        kl=(ratio - 1 - log_ratio).mean(),
        clip_fraction=((ratio - 1).abs() > clip).float().mean(),
    )


def normalise(advantage: Tensor) -> Tensor:
    """Shift and scale `[B]` to mean 0 and (unbiased) standard deviation 1."""
    return (advantage - advantage.mean()) / (advantage.std() + 1e-8)
