"""Targets, losses and advantages against values computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from hotloop.training.learn.loss_terms import cross_entropy, huber, normalise, ppo_losses, project, q_target
from hotloop.training.learn.returns import gae


def column(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)[:, None]


def flags(*values: int) -> np.ndarray:
    return np.array(values, dtype=bool)[:, None]


def test_gae_adds_discounted_errors() -> None:
    # δ = 1 + 0.5·2 − 1 = 1, 2 + 0.5·4 − 2 = 2, 3 + 0.5·8 − 4 = 3; γλ = 1/4: A_2 = 3, A_1 = 2.75, A_0 = 1.6875.
    reward, value, following = column(1, 2, 3), column(1, 2, 4), column(2, 4, 8)
    advantage = gae(reward, value, following, flags(0, 0, 0), flags(0, 0, 0), 0.5, 0.5)
    assert advantage.dtype == np.float32
    assert advantage[:, 0].tolist() == [1.6875, 2.75, 3.0]


def test_gae_ignores_the_next_value_at_a_terminated_step() -> None:
    # δ_0 = 1 − 1 = 0 although the next value is 100; A_1 does not contribute.
    advantage = gae(column(1, 2), column(1, 2), column(100, 4), flags(1, 0), flags(0, 0), 0.5, 0.5)
    assert advantage[:, 0].tolist() == [0.0, 2.0]


def test_gae_bootstraps_from_the_final_observation_at_a_truncated_step() -> None:
    # δ_0 = 1 + 0.5·6 − 1 = 3, and A_1 = 2 belongs to another episode.
    advantage = gae(column(1, 2), column(1, 2), column(6, 4), flags(0, 0), flags(1, 0), 0.5, 0.5)
    assert advantage[:, 0].tolist() == [3.0, 2.0]


def test_gae_does_not_mix_environments() -> None:
    def both(first: list[float], second: list[float]) -> np.ndarray:
        return np.array([first, second], dtype=np.float32).T

    reward, value, following = both([1, 1], [0, 8]), both([0, 0], [0, 0]), both([0, 0], [0, 0])
    none = np.zeros((2, 2), dtype=bool)
    advantage = gae(reward, value, following, none, none, 1.0, 0.5)
    assert advantage.T.tolist() == [[1.5, 1.0], [4.0, 8.0]]


def test_gae_rejects_arrays_of_different_shapes() -> None:
    with pytest.raises(AssertionError):
        gae(column(1, 2), column(1), column(1, 2), flags(0, 0), flags(0, 0), 0.5, 0.5)


def test_huber_is_quadratic_then_linear() -> None:
    assert huber(torch.tensor([0.0, 0.5, -0.5, 1.0, 3.0, -3.0])).tolist() == [0.0, 0.125, 0.125, 0.5, 2.5, 2.5]


def test_q_target_evaluates_the_choosers_action_with_the_target_network() -> None:
    reward, discount = torch.tensor([1.0, 1.0]), torch.tensor([0.5, 0.0])
    target_q = torch.tensor([[10.0, 4.0], [10.0, 4.0]])
    chooser = torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    assert q_target(reward, discount, target_q, chooser).tolist() == [3.0, 1.0]  # double: not the 10
    assert q_target(reward, discount, target_q, target_q).tolist() == [6.0, 1.0]  # plain


def test_projection_splits_a_moved_atom_between_its_neighbours() -> None:
    support = torch.tensor([-1.0, 0.0, 1.0, 2.0])
    # 0.25 + 0.5 z: −1 → −0.25, a quarter to −1 and three to 0; 2 → 1.25, three quarters to 1 and one to 2.
    moved = project(torch.tensor([[0.5, 0.0, 0.0, 0.5]]), torch.tensor([0.25]), torch.tensor([0.5]), support)
    assert moved.tolist() == [[0.125, 0.375, 0.375, 0.125]]


def test_projection_at_a_terminated_step_is_the_reward() -> None:
    support = torch.tensor([-1.0, 0.0, 1.0])
    probability = torch.full((2, 3), 1 / 3)
    moved = project(probability, torch.tensor([1.0, 7.0]), torch.tensor([0.0, 0.0]), support)
    # The second reward is above all atoms and is clamped to the last one.
    assert moved.tolist() == [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]


def test_cross_entropy_of_equal_logits_is_the_log_of_their_count() -> None:
    found = cross_entropy(torch.zeros(1, 4), torch.tensor([[0.25, 0.25, 0.5, 0.0]]))
    assert found.item() == pytest.approx(math.log(4), rel=1e-6)


def test_ppo_losses_by_hand() -> None:
    # Equal logits, so π = 1/2. Old probabilities 1/4 and 1/2, so ρ = 2 and 1.
    logits, value = torch.zeros(2, 2), torch.tensor([1.0, 3.0])
    old = (
        torch.tensor([0, 1]),
        torch.tensor([0.25, 0.5]).log(),
        torch.tensor([1.0, -1.0]),
        torch.tensor([0.0, 0.0]),
    )
    found = ppo_losses(logits, value, old, clip=0.2)
    # −mean(min(2, 1.2), min(−1, −1)) = −0.1; mean(1, 9) = 5; log 2; mean(2 − 1 − log 2, 0); half are outside.
    assert found.policy.item() == pytest.approx(-0.1, abs=1e-6)
    assert found.value.item() == 5.0
    assert found.entropy.item() == pytest.approx(math.log(2), rel=1e-6)
    assert found.kl.item() == pytest.approx((1 - math.log(2)) / 2, rel=1e-5)
    assert found.clip_fraction.item() == 0.5


def test_clipping_stops_the_gradient_only_for_positive_advantages() -> None:
    # ρ = 2 for both rows. With a positive advantage it is clipped, with a negative one it is not.
    logits = torch.zeros(2, 2, requires_grad=True)
    old = (torch.tensor([0, 0]), torch.tensor([0.25, 0.25]).log(), torch.tensor([1.0, -1.0]), torch.zeros(2))
    ppo_losses(logits, torch.zeros(2), old, clip=0.2).policy.backward()
    assert logits.grad is not None
    # Second row: dL/dlogit = −A ρ (1 − π)/B = 2 · 0.5 / 2 for the action, its opposite for the other.
    assert logits.grad.tolist() == [[0.0, 0.0], [0.5, -0.5]]


def test_normalise_by_hand() -> None:
    assert normalise(torch.tensor([1.0, 2.0, 3.0])).tolist() == pytest.approx([-1.0, 0.0, 1.0])
