"""What the hooks count of validity: training mode, losses that are not finite, compilations. With real torch."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from tests.counting import counted
from torch import nn

from hotloop.profiling.recorder.hooks import install
from hotloop.profiling.recorder.hooks.torch.training_mode import is_again
from hotloop.spans import registry

torch.set_num_threads(1)

Count = Callable[[Callable[[], Any]], Counter[str]]


@pytest.fixture
def count() -> Iterator[Count]:
    uninstall = install()
    yield counted
    registry.hush()
    uninstall()


def test_forward_passes_in_training_mode_are_counted_by_kind(count):
    net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.BatchNorm1d(4), nn.Dropout(0.2))
    x = torch.ones(2, 3)

    def work():
        for _ in range(3):
            net(x)
        net.eval()
        for _ in range(5):
            net(x)
        net[2].train()
        net(x)

    found = count(work)
    assert (found["training_mode.dropout"], found["training_mode.batchnorm"]) == (3, 4)


def test_layers_that_do_not_differ_are_not_counted(count):
    net = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Dropout(0.0), nn.BatchNorm1d(4, track_running_stats=False))
    found = count(lambda: net(torch.ones(2, 3)))
    assert not [name for name in found if name.startswith("training_mode")]


def test_a_module_is_let_go(count):
    net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5))
    layer = weakref.ref(net[1])
    count(partial(net, torch.ones(2, 3)))
    del net
    assert layer() is None


@pytest.mark.parametrize(("value", "bad"), [(float("nan"), 1), (float("inf"), 1), (-float("inf"), 1), (1e30, 0)])
def test_losses_that_are_not_finite_are_counted(count, value, bad):
    weight = torch.ones(3, requires_grad=True)
    found = count(lambda: (weight.sum() * value).backward())
    assert found["non_finite_losses"] == bad
    assert found["host_syncs.item"] == 0


def test_a_backward_of_many_numbers_is_left_alone(count):
    weight = torch.full((3,), float("nan"), requires_grad=True)
    found = count(lambda: (weight * 1).backward(torch.ones(3)))
    assert found["non_finite_losses"] == 0


def test_gradients_asked_for_by_keyword_are_left_alone(count):
    weight = torch.ones(3, requires_grad=True)
    found = count(lambda: torch.autograd.grad(outputs=weight.sum(), inputs=weight))
    assert found["non_finite_losses"] == 0


def test_compilations_are_counted_and_those_that_are_not_the_first(count):
    torch._dynamo.reset()

    def double(x):
        return x * 2

    fast = torch.compile(double, backend="eager", dynamic=False)

    def work():
        for n in (2, 3, 4, 2, 3):
            fast(torch.ones(n))

    found = count(work)
    assert (found["compilations"], found["recompilations"]) == (3, 2)


@pytest.mark.parametrize(
    ("compile_id", "again"),
    [("0/0", False), ("0/1", True), ("[3/0]", False), ("[3/12]", True), ("0/0_1", False), ("2/1_1", True), ("", False)],
)
def test_a_compile_id_tells_whether_it_is_the_first(compile_id, again):
    assert is_again(compile_id) is again


def trained() -> list[torch.Tensor]:
    """Train a network with dropout and BatchNorm for some steps; return its weights and statistics."""
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 1))
    optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(20):
        net.eval()
        net(torch.randn(4, 3))
        net.train()
        loss = net(torch.randn(16, 3)).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return list(net.state_dict().values())


def test_training_is_bit_identical(count):
    weights: list[torch.Tensor] = []
    found = count(lambda: weights.extend(trained()))
    assert (found["training_mode.dropout"], found["training_mode.batchnorm"], found["non_finite_losses"]) == (20, 20, 0)
    assert all(torch.equal(a, b) for a, b in zip(weights, trained(), strict=True))
