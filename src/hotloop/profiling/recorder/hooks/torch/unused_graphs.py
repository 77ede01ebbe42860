"""What learning does for nothing: graphs that no backward goes through, optimisers that go tensor by tensor.

Of every sixteenth forward pass at a place in the code it is found out what became of its graph: was it gone
through, or freed unused. Nothing is kept alive for it, and no gradient is touched.
"""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from hotloop.profiling.recorder.hooks.patching import Patches, Subject
from hotloop.profiling.recorder.hooks.wrappers import report_failure
from hotloop.spans.hot_path import note
from hotloop.spans.registry import counter_code

EVERY = 16
"""One in so many forward passes is followed up. A power of two."""
MOST_NODES = 2048
"""A graph is counted up to this size: one that goes past its inputs may reach back to the start of the run."""
_USED, _UNUSED, _NODES, _TENSORS, _ELEMENTS = map(
    counter_code, ("graphs_used", "graphs_unused", "graph_nodes_unused", "optimiser_tensors", "optimiser_elements")
)


class Site:
    """A place in the code where a network is called, and the fate of the last graph followed up there."""

    __slots__ = ("calls", "code", "follower", "nodes", "used")

    def __init__(self, code: types.CodeType) -> None:
        self.code = code
        """Kept, so that no other code is given its id."""
        self.calls = -1
        self.follower: Callable[[], Follower | None] | None = None
        self.nodes = 0
        self.used = False


class Follower:
    """Lives as long as the graph it is hung into, and notes when a backward comes by."""

    __slots__ = ("__weakref__", "site")

    def __init__(self, site: Site) -> None:
        self.site = site

    def met(self, *gradients: Any) -> None:
        """A backward goes through the graph."""
        self.site.used = True


_sites: dict[tuple[int, int], Site] = {}
"""By the code's id, for hashing the code itself goes through all its constants, and the instruction."""
_plain: dict[int, tuple[Any, int, int]] = {}
"""Optimiser's id to a weak reference to it, its tensors, their elements; no tensors if it is fused or foreach."""


class _Torch:
    tensor: type = type(None)


_torch = _Torch()


def follow_graph(inputs: tuple[Any, ...], out: Any) -> Any:
    """Follow up what becomes of a forward pass's graph. Call it from a wrapper that the network's caller called.

    Returns `out`.
    """
    wrapper = sys._getframe(1)
    caller = wrapper.f_back or wrapper  # A thread may run a network itself.
    code = caller.f_code
    key = (id(code), caller.f_lasti)
    site = _sites.get(key)
    if site is None:
        site = _sites[key] = Site(code)
    site.calls += 1
    if site.calls & (EVERY - 1) == 0:
        try:
            _settle(site, inputs, out)
        except Exception as error:
            if not report_failure("follow the graph of a forward pass", error):
                raise
    return out


def _settle(site: Site, inputs: tuple[Any, ...], out: Any) -> None:
    """Count the fate of the last graph followed up, and follow the new one."""
    if site.follower is not None:
        if site.used:
            note(_USED, 1)
        elif site.follower() is None:
            note(_UNUSED, 1)
            note(_NODES, site.nodes)
        else:
            return  # it is still there, and may yet be used
    site.follower = None
    before = _functions(inputs)
    functions = [each for each in _functions(out) if each not in before]
    if not functions:
        return
    follower = Follower(site)
    for function in functions:
        function.register_prehook(follower.met)
    site.nodes = site.nodes or _graph_size(functions, before)
    site.used = False
    site.follower = weakref.ref(follower)


def _tensors(out: Any) -> Iterator[Any]:
    """Yield the tensors of what a network returns: one, or a few in a tuple, list or dictionary."""
    if type(out) is _torch.tensor:
        yield out
    elif isinstance(out, (tuple, list)):
        for each in out:
            yield from _tensors(each)
    elif isinstance(out, dict):
        yield from _tensors(list(out.values()))


def _functions(values: Any) -> set[Any]:
    """Return the nodes of the graph that tensors come from."""
    return {tensor.grad_fn for tensor in _tensors(values) if tensor.grad_fn is not None}


def _graph_size(functions: list[Any], before: set[Any]) -> int:
    """Count the nodes between inputs and outputs, except those that only stand for a parameter."""
    seen = before | set(functions)
    waiting = list(functions)
    while waiting and len(seen) < MOST_NODES:
        for each, _ in waiting.pop().next_functions:
            if each is not None and each not in seen and each.next_functions:
                seen.add(each)
                waiting.append(each)
    return len(seen) - len(before)


def note_optimiser(optimiser: Any) -> None:
    """Count the tensors that an optimiser's step visits one after the other in Python."""
    try:
        entry = _plain.get(id(optimiser))
        if entry is None or entry[0]() is not optimiser:
            entry = _plain[id(optimiser)] = (weakref.ref(optimiser), *_one_by_one(optimiser))
        if entry[1]:
            note(_TENSORS, entry[1])
            note(_ELEMENTS, entry[2])
    except Exception as error:
        if not report_failure("look at an optimiser", error):
            raise


def _one_by_one(optimiser: Any) -> tuple[int, int]:
    """Return how many tensors, of how many elements, an optimiser goes through one by one.

    Torch takes its foreach form by itself where all tensors are on a device, and never on the CPU.
    """
    tensors = elements = 0
    for group in optimiser.param_groups:
        alone = not group.get("fused") and not group.get("foreach")
        by_default = "foreach" in group and group["foreach"] is None
        for parameter in group["params"]:
            if alone and parameter.requires_grad and not (by_default and not parameter.is_cpu):
                tensors += 1
                elements += parameter.numel()
    return tensors, elements


def on_torch(torch: types.ModuleType, patches: Patches) -> None:
    """Learn what a tensor is."""
    _torch.tensor = torch.Tensor


SUBJECT = Subject(on_import={"torch": on_torch})
