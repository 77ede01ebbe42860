"""What a replay hands to a learner."""

from __future__ import annotations

from typing import Any, NamedTuple


class Batch(NamedTuple):
    """B sampled transitions, as NumPy arrays or, after `to_torch`, as tensors on the same memory."""

    obs: Any
    """[B, *obs_shape]"""
    action: Any
    """[B, *action_shape]"""
    reward: Any
    """float32 [B]: the n-step return, without what is bootstrapped."""
    next_obs: Any
    """[B, *obs_shape]: where the n steps, or the episode, ended."""
    discount: Any
    """float32 [B]: what V(next_obs) is multiplied with: γ^n, less steps if truncated, 0 if terminated."""
    index: Any
    """int64 [B]: to be handed back to `update_priorities`."""
    weight: Any
    """float32 [B]: importance weights, 1 when sampling is uniform."""

    def to_torch(self) -> Batch:
        """Return the same batch as torch tensors that share its memory."""
        import torch

        return Batch(*(torch.from_numpy(each) for each in self))
