"""Advantages of a rollout, as a pure function of arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
Flags = NDArray[np.bool_]


def gae(  # noqa: PLR0913 - the arrays and numbers of the equation
    reward: F32, value: F32, next_value: F32, terminated: Flags, truncated: Flags, gamma: float, lam: float
) -> F32:
    """Generalised advantage estimation (Schulman et al., 2016).

    `δ_t = r_t + γ (1 − terminated_t) v'_t − v_t`, `A_t = δ_t + γ λ (1 − terminated_t ∨ truncated_t) A_{t+1}`.
    A truncated episode would have continued, so the value of its final observation counts. No advantage is carried
    over from one episode to the previous one.

    Args:
        reward: `[T, N]`.
        value: `[T, N]`: of the observation at t.
        next_value: `[T, N]`: of the true next observation, the final one if an episode ended at t.
        terminated: `[T, N]`.
        truncated: `[T, N]`.
        gamma: γ.
        lam: λ.

    Returns:
        Advantages `[T, N]`. The targets of the value function are these plus `value`.
    """
    assert reward.ndim == 2 and reward.shape == value.shape == next_value.shape
    assert terminated.shape == truncated.shape == reward.shape
    delta = reward + np.float32(gamma) * np.where(terminated, np.float32(0), next_value) - value
    carry = np.float32(gamma * lam) * ~(terminated | truncated)
    advantage = np.empty_like(delta)
    following = np.zeros_like(delta[0])
    for t in range(len(delta) - 1, -1, -1):
        following = delta[t] + carry[t] * following
        advantage[t] = following
    return advantage
