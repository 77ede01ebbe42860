"""Predicting planes from pictures: certain predictions equal the planes, and the reader can be trained."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from hotloop.training.envs.ricochet import RicochetVectorEnv
from hotloop.training.learn import BoardPPO, BoardPPOConfig, BoardShape, Sequences
from hotloop.training.learn.ricochet_ppo.image_reader import Reader, Reading, planes_of, reading_loss
from hotloop.training.learn.ricochet_ppo.networks import BoardNetwork
from hotloop.training.learn.ricochet_ppo.shape import pieces
from hotloop.training.pipelines.ppo_ricochet import board_loss

SHAPE = BoardShape((128, 128, 3), 8, 8, channels=4, layers=1, hidden=8, read_planes=True)
SURE = 40.0
"""A logit whose probability is 1 up to rounding."""


def boards(amount: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures of boards of 8×8 with two robots, and their planes."""
    env = RicochetVectorEnv(amount, size=8, robots=2, observation="rgb")
    pictures, _ = env.reset(seed=seed)
    return torch.from_numpy(pictures.copy()), torch.from_numpy(env.puzzles().planes())


def certain(planes: torch.Tensor) -> Reading:
    """Logits that predict these planes with certainty."""
    true = planes.flatten(2).float()
    goal_of_robot = (true[:, 5:6] * true[:, 6:]).sum(2, keepdim=True) * true[:, 4:5]
    return Reading(SURE * (2 * true[:, :4] - 1), SURE * true[:, 6:], SURE * goal_of_robot)


def test_certain_predictions_equal_the_planes_and_have_no_loss() -> None:
    _, planes = boards(16, 0)
    reading = certain(planes)
    assert torch.allclose(planes_of(reading, 8), planes.float(), atol=1e-6)
    assert reading_loss(reading, planes).item() == pytest.approx(0, abs=1e-6)


def test_zero_logits_give_uniform_planes() -> None:
    _, planes = boards(3, 0)
    reading = Reading(torch.zeros(3, 4, 64), torch.zeros(3, 2, 64), torch.zeros(3, 2, 64))
    read = planes_of(reading, 8)
    assert read.shape == planes.shape == (3, 8, 8, 8)
    assert torch.allclose(read[:, :4], torch.tensor(0.5))
    assert torch.allclose(read[:, 4:], torch.tensor(1 / 64))
    expected = 4 * math.log(2) + math.log(64) + math.log(2 * 64)
    assert reading_loss(reading, planes).item() == pytest.approx(expected, abs=1e-5)


def test_network_with_certain_predictions_equals_the_network_for_planes() -> None:
    pictures, planes = boards(5, 3)
    torch.manual_seed(0)
    whole, plain = BoardNetwork(SHAPE), BoardNetwork(SHAPE.planes)
    rest = {name: value for name, value in whole.state_dict().items() if not name.startswith("reader.")}
    plain.load_state_dict(rest)
    assert whole.reader is not None
    whole.reader.forward = lambda cells: certain(planes)  # type: ignore[method-assign]
    memory, fresh = torch.zeros(0, 5, 4, 8, 8), torch.ones(5, dtype=torch.bool)
    for ours, theirs in zip(whole.step(pictures, memory, fresh), plain.step(planes, memory, fresh), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("what", ["logits", "value", "reading"])
def test_all_losses_train_the_reader(what: str) -> None:
    pictures, planes = boards(4, 0)
    torch.manual_seed(0)
    network = BoardNetwork(SHAPE)
    memory, fresh = torch.zeros(0, 4, 4, 8, 8), torch.ones(1, 4, dtype=torch.bool)
    logits, value, _, reading = network.unroll(pictures[None], memory, fresh)
    assert reading is not None
    assert [tuple(each.shape) for each in reading] == [(4, 4, 64), (4, 2, 64), (4, 2, 64)]
    loss = {"logits": logits.square().sum(), "value": value.sum(), "reading": reading_loss(reading, planes)}[what]
    loss.backward()
    assert network.reader is not None
    for parameter in network.reader.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
        assert parameter.grad.any()


def test_auxiliary_loss_is_reported_and_changes_the_reader() -> None:
    pictures, planes = boards(4, 0)
    size, rng = (1, 4), np.random.default_rng(0)
    real = [rng.standard_normal(size, dtype=np.float32) for _ in range(2)]
    given = Sequences(
        pictures[None].numpy(), np.ones(size, np.bool_), np.zeros((0, 4, 4, 8, 8), np.float32),
        rng.integers(0, 8, size), np.full(size, -np.log(8), np.float32), *real, planes[None].numpy(),
    )  # fmt: skip
    none, little = (
        BoardPPO(BoardPPOConfig(SHAPE, boards=4, epochs=1, auxiliary=each), board_loss, seed=1) for each in (0.0, 1.0)
    )
    with torch.no_grad():
        reading = little.network.unroll(pictures[None], torch.from_numpy(given.memory), torch.ones(1, 4) > 0)[3]
    assert reading is not None
    expected = reading_loss(reading, planes).item()
    without_loss = none.update(given, np.random.default_rng(0))
    with_loss = little.update(given, np.random.default_rng(0))
    assert without_loss.reading_loss is None
    assert with_loss.reading_loss == pytest.approx(expected, abs=1e-5)
    assert with_loss.policy_loss == pytest.approx(without_loss.policy_loss, abs=1e-6)
    assert (
        none.tensors()["board.weights.reader.told.bias"] != little.tensors()["board.weights.reader.told.bias"]
    ).any()


def test_reader_generalises_to_new_boards() -> None:
    torch.manual_seed(0)
    reader = Reader(SHAPE)
    pictures, planes = boards(128, 0)
    cut = pieces(pictures, 8)
    optimiser = torch.optim.Adam(reader.parameters(), lr=4e-3)
    for _ in range(60):
        optimiser.zero_grad()
        reading_loss(reader(cut), planes).backward()
        optimiser.step()
    others, true = boards(64, 10_000)
    with torch.no_grad():
        read = planes_of(reader(pieces(others, 8)), 8)
    assert ((read[:, :4] > 0.5) == true[:, :4]).float().mean() >= 0.99
    for plane in range(4, 8):
        found = read[:, plane].flatten(1).argmax(1) == true[:, plane].flatten(1).argmax(1)
        assert found.float().mean() >= 0.95, plane
