"""The transitions that a replay returns to a learner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

if TYPE_CHECKING:
    import torch

ArrayT = TypeVar("ArrayT")


@dataclass(slots=True)
class Batch(Generic[ArrayT]):
    """B sampled transitions: `Batch[np.ndarray]`, or `Batch[torch.Tensor]` on the same memory after `to_torch`."""

    obs: ArrayT
    """[B, *obs_shape]"""
    action: ArrayT
    """[B, *action_shape]"""
    reward: ArrayT
    """float32 [B]: the n-step return, without the bootstrapped value."""
    next_obs: ArrayT
    """[B, *obs_shape]: the observation after n steps, or the last one of the episode."""
    discount: ArrayT
    """float32 [B]: factor of V(next_obs): γ^n, a lower power if truncated earlier, 0 if terminated."""
    index: ArrayT
    """int64 [B]: pass it to `update_priorities`."""
    weight: ArrayT
    """float32 [B]: importance weights, all 1 with uniform sampling."""

    def __iter__(self) -> Iterator[ArrayT]:
        columns = (self.obs, self.action, self.reward, self.next_obs, self.discount, self.index, self.weight)
        return iter(columns)

    def to_torch(self: Batch[np.ndarray]) -> Batch[torch.Tensor]:
        """Return the same batch as torch tensors that share its memory."""
        import torch

        return Batch(*(torch.from_numpy(each) for each in self))
