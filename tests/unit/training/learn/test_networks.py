"""Shapes and parts of the networks; some outputs against values computed by hand."""

from __future__ import annotations

import itertools

import pytest
import torch

from hotloop.errors import HotloopError
from hotloop.training.learn.networks import ActorCritic, NoisyLinear, QNetwork, QShape

OPTIONS = list(itertools.product([False, True], [False, True], [1, 5], [(4,), (5, 6, 3)]))


@pytest.mark.parametrize(("dueling", "noisy", "atoms", "observation"), OPTIONS)
def test_all_option_combinations_return_values_of_all_actions(
    dueling: bool, noisy: bool, atoms: int, observation: tuple[int, ...]
) -> None:
    shape = QShape(observation, 3, hidden=(8, 6), dueling=dueling, noisy=noisy, atoms=atoms, v_min=0, v_max=1)
    network = QNetwork(shape)
    obs = torch.ones(7, *observation, dtype=torch.uint8 if len(observation) == 3 else torch.float32)
    output = network(obs, torch.ones(network.noise_size) if noisy else None)
    assert output.shape == ((7, 3) if atoms == 1 else (7, 3, atoms))
    assert network.values(output).shape == (7, 3)
    assert (network.noise_size > 0) == noisy
    network.values(output).sum().backward()
    assert all(p.grad is not None for p in network.parameters())


def test_dueling_output_is_value_plus_centred_advantage() -> None:
    network = QNetwork(QShape((1,), 2, hidden=(2,), dueling=True))
    assert network.value is not None
    with torch.no_grad():
        network.top.weight.copy_(torch.tensor([[1.0], [0.0], [2.0], [0.0]]))
        network.top.bias.zero_()
        network.value.weight.copy_(torch.tensor([[10.0, 0.0]]))
        network.value.bias.zero_()
        network.advantage.weight.copy_(torch.tensor([[1.0, 0.0], [4.0, 0.0]]))
        network.advantage.bias.zero_()
    # Input 1: streams (1, 0) and (2, 0), value 10, advantages 2 and 8 with mean 5.
    assert network(torch.tensor([[1.0]])).tolist() == [[7.0, 13.0]]


def test_value_of_a_distribution_is_its_mean() -> None:
    network = QNetwork(QShape((1,), 2, hidden=(2,), atoms=3, v_min=-2.0, v_max=2.0))
    logits = torch.tensor([[[0.0, 0.0, 0.0], [-1e9, 0.0, 0.0]]])
    assert network.values(logits).tolist() == [[0.0, 1.0]]


def test_noise_is_factorised() -> None:
    layer = NoisyLinear(2, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 2.0]]))
        layer.bias.fill_(3.0)
        layer.weight_sigma.fill_(0.5)
        layer.bias_sigma.fill_(0.25)
    # Noise 2 and 4 for the inputs, 10 for the output: w = 1 + 0.5·20, 2 + 0.5·40, b = 3 + 0.25·10.
    assert layer(torch.tensor([[1.0, 1.0]]), torch.tensor([2.0, 4.0, 10.0])).item() == 11 + 22 + 5.5
    assert layer(torch.tensor([[1.0, 1.0]]), None).item() == 6.0


def test_actor_and_critic_are_separate_and_the_initial_policy_is_nearly_uniform() -> None:
    network = ActorCritic((4,), 3, (8, 8))
    logits, value = network(torch.ones(5, 4))
    assert logits.shape == (5, 3) and value.shape == (5,)
    assert logits.abs().max() < 0.1
    value.sum().backward()
    assert all(p.grad is None for p in network.policy.parameters())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observation": (4, 4)}, "observation shape is (4, 4)"),
        ({"actions": 1}, "actions is 1"),
        ({"hidden": ()}, "hidden is ()"),
        ({"atoms": 0}, "atoms is 0"),
        ({"atoms": 51, "v_min": 3.0, "v_max": 1.0}, "v_min 3.0"),
    ],
)
def test_invalid_shapes_are_rejected(change: dict, message: str) -> None:
    with pytest.raises(HotloopError) as error:
        QShape(**{"observation": (4,), "actions": 3, **change})
    assert message in str(error.value)
