"""What the wrapper of module calls takes within a call is added up in the outermost call's span. With real torch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from hotloop.hook_kinds import Hook
from hotloop.profiling.recorder import wrapper_overhead as cost
from hotloop.profiling.recorder.hooks import install
from hotloop.profiling.recorder.hooks.state import HookState
from hotloop.spans import registry

torch.set_num_threads(1)


class Within(nn.Module):
    """Three layers in two levels: five calls inside the outermost."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        self.out = nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.body(x))


@pytest.fixture
def listening() -> Iterator[HookState]:
    state = HookState()
    uninstall = install(state)
    costs = state.module_costs
    costs.own_ns, costs.graph_ns, costs.inner_ns = 100.0, 1000.0, 10.0
    registry.listen()
    yield state
    registry.hush()
    uninstall()


def span_of_within() -> registry.Span:
    found = next(each for each in registry.known_spans() if each.name == "Within")
    assert found.hook == Hook.MODULE
    return found


def test_calls_inside_a_call_are_counted_in_it(listening):
    net, x = Within(), torch.ones(1, 3)
    net(x)
    each = span_of_within()
    each.within_ns = 0.0
    with torch.no_grad():
        for _ in range(4):
            net(x)
    assert each.within_ns == 4 * (100 + 5 * 10)
    net(x)
    assert each.within_ns == 5 * (100 + 5 * 10) + 1000


def test_calls_inside_that_are_timed_themselves_are_not_counted(listening):
    listening.depth = 2
    net, x = Within(), torch.ones(1, 3)
    with torch.no_grad():
        net(x)
        each = span_of_within()
        each.within_ns = 0.0
        net(x)
    assert each.within_ns == 100 + 3 * 10


def test_a_compiled_call_of_a_layer_is_made(listening):
    net, x = Within(), torch.ones(1, 3)
    with torch.no_grad():
        net(x)
        net.out._compiled_call_impl = lambda given: given + 7
        net.body[1]._compiled_call_impl = torch.zeros_like
        expected = net.body[2].bias + 7
        assert torch.equal(net(x)[0], expected)
        net._compiled_call_impl = lambda given: given
        assert net(x) is x


def test_measuring_leaves_nothing_behind():
    state, random = HookState(), torch.get_rng_state()
    costs = state.module_costs
    costs.own_ns = costs.graph_ns = costs.inner_ns = -1.0
    cost.measure_wrappers(state, rounds=20)
    logs = registry.listen()
    try:
        cost.measure_modules(torch, state, rounds=20)
    finally:
        registry.hush()
    assert not sum(map(len, logs))
    assert torch.equal(torch.get_rng_state(), random)
    assert state.here.at.modules == 0
    names = {"wrap_ns", "step_wrap_ns", "quick_wrap_ns", "module_wrap_ns", "tally_wrap_ns"}
    assert set(state.wrapper_ns) == names
    assert all(ns >= cost.LEAST_NS for ns in state.wrapper_ns.values())
    assert min(costs.graph_ns, costs.inner_ns) >= 0
