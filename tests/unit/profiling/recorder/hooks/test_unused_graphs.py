"""Counters of learning: which graphs were used, and how many tensors an optimiser visits one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("torch")

import torch
from tests import counting
from torch import nn

from hotloop.profiling.recorder.hooks import install
from hotloop.profiling.recorder.hooks.torch import unused_graphs
from hotloop.spans import registry

torch.set_num_threads(1)
CALLS = 5 * unused_graphs.EVERY
FOLLOWED = 4
"""The first of every sixteen is followed, and its fate told by the next one: five followed, four told."""


@pytest.fixture
def counted() -> Iterator[Callable[[Callable[[], None]], Counter[str]]]:
    uninstall = install()
    yield counting.counted
    registry.hush()
    uninstall()


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


NODES = 5
"""Of the network's graph: two linear layers with a transposed weight each, and a ReLU between them."""


def test_graphs_of_acting_are_unused(counted):
    net, x = network(), torch.randn(3, 4)

    def work():
        for _ in range(CALLS):
            net(x).argmax(1)

    seen = counted(work)
    assert (seen["graphs_unused"], seen["graphs_used"]) == (FOLLOWED, 0)
    assert seen["graph_nodes_unused"] == FOLLOWED * NODES


def test_graphs_of_learning_are_used(counted):
    net, x = network(), torch.randn(3, 4)

    def work():
        for _ in range(CALLS):
            net(x).sum().backward()

    seen = counted(work)
    assert (seen["graphs_unused"], seen["graphs_used"]) == (0, FOLLOWED)


def test_without_gradients_nothing_is_followed(counted):
    net, x = network(), torch.randn(3, 4)

    def work():
        with torch.no_grad():
            for _ in range(CALLS):
                net(x)

    assert not {"graphs_unused", "graphs_used"} & set(counted(work))


def test_a_graph_that_is_kept_for_later_is_not_judged(counted):
    net, x = network(), torch.randn(3, 4)
    kept = []

    def work():
        for _ in range(CALLS):
            kept.append(net(x).log_softmax(1)[:, 0])
        torch.stack(kept).sum().backward()

    assert not {"graphs_unused", "graphs_used"} & set(counted(work))


def test_only_the_nodes_behind_the_inputs_count(counted):
    net, square = network(), nn.Linear(4, 4)
    x = torch.randn(3, 4)

    def work():
        for _ in range(CALLS):
            net(square(square(x)))

    seen = counted(work)
    # Three places: each call of a layer is followed apart, with the nodes of its own only.
    assert seen["graphs_unused"] == 3 * FOLLOWED
    assert seen["graph_nodes_unused"] == FOLLOWED * (NODES + 2 * 2)


def test_one_of_several_outputs_is_enough(counted):
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.actor, self.critic = nn.Linear(4, 2), nn.Linear(4, 1)

        def forward(self, x):
            return {"logits": self.actor(x), "value": (self.critic(x), 0.5)}

    net, x = Both(), torch.randn(3, 4)

    def work():
        for _ in range(CALLS):
            net(x)["value"][0].sum().backward()

    assert counted(work)["graphs_used"] == FOLLOWED


def test_following_changes_no_gradient(counted):
    x = torch.randn(64, 4)

    def train(net):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(CALLS):
            optimizer.zero_grad()
            net(x).pow(2).mean().backward()
            optimizer.step()
        return torch.cat([parameter.detach().flatten() for parameter in net.parameters()])

    torch.manual_seed(3)
    plain = network()
    followed = network()
    followed.load_state_dict(plain.state_dict())
    results = {}
    counted(lambda: results.update(followed=train(followed)))
    results["plain"] = train(plain)
    assert torch.equal(results["followed"], results["plain"])


@pytest.mark.parametrize(
    ("options", "tensors"), [({}, 4), ({"foreach": False}, 4), ({"fused": True}, 0), ({"foreach": True}, 0)]
)
def test_tensors_visited_one_by_one_are_counted(counted, options, tensors):
    net = network()
    optimizer = torch.optim.Adam(net.parameters(), **options)

    def work():
        for _ in range(3):
            net(torch.ones(1, 4)).sum().backward()
            optimizer.step()

    seen = counted(work)
    assert seen["optimiser_tensors"] == 3 * tensors
    assert seen["optimiser_elements"] == (3 * (4 * 8 + 8 + 8 * 2 + 2) if tensors else 0)


def test_an_optimiser_of_ones_own_goes_one_by_one(counted):
    class Plain(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {})

        def step(self):
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.data.add_(parameter.grad, alpha=-0.1)

    net = network()
    optimizer = Plain(net.parameters())

    def work():
        net(torch.ones(1, 4)).sum().backward()
        optimizer.step()

    assert counted(work)["optimiser_tensors"] == 4
