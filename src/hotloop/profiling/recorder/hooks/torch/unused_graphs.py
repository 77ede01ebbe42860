"""Graphs that no backward goes through.

Every sixteenth forward pass at a place in the code is followed: was its graph used by a backward, or freed unused?
Nothing is kept alive for it, and no gradient is touched.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from types import CodeType
from typing import TYPE_CHECKING, TypeVar

from hotloop.profiling.recorder.hooks.torch.library import Library
from hotloop.profiling.recorder.hooks.wrappers import Failures
from hotloop.spans.hot_path import note
from hotloop.spans.registry import counter_code

if TYPE_CHECKING:
    import torch
    from torch.autograd.graph import Node

EVERY = 16
"""One in so many forward passes is followed. A power of two."""
MOST_NODES = 2048
"""A graph is counted up to this size: one that goes past its inputs may reach back to the start of the run."""
_USED, _UNUSED, _NODES = map(counter_code, ("graphs_used", "graphs_unused", "graph_nodes_unused"))

Out = TypeVar("Out")


class Site:
    """A place in the code where a network is called, and the last graph that was followed there."""

    __slots__ = ("calls", "code", "follower", "nodes", "used")

    def __init__(self, code: CodeType) -> None:
        self.code = code
        """Kept alive, so that no other code object gets its id."""
        self.calls = -1
        self.follower: weakref.ref[Follower] | None = None
        self.nodes = 0
        self.used = False


class Follower:
    """Lives as long as the graph it is attached to, and notes when a backward goes through."""

    __slots__ = ("__weakref__", "site")

    def __init__(self, site: Site) -> None:
        self.site = site

    def met(self, *gradients: torch.Tensor) -> None:
        """A backward goes through the graph."""
        self.site.used = True


class UnusedGraphs:
    """Follows graphs and counts those that were used and those that were not."""

    def __init__(self, torch: Library, failures: Failures) -> None:
        self._torch = torch
        self._failures = failures
        self._sites: dict[tuple[int, int], Site] = {}
        """By the code's id and the instruction. Hashing the code itself would hash all its constants."""

    def follow(self, inputs: tuple, out: Out) -> Out:
        """Follow a forward pass's graph. Call it from a wrapper that the network's caller called.

        Returns `out`.
        """
        wrapper = sys._getframe(1)
        caller = wrapper.f_back or wrapper  # A thread may run a network itself.
        if caller.f_globals is wrapper.f_globals:  # without the C extension there are two
            caller = caller.f_back or caller
        code = caller.f_code
        key = (id(code), caller.f_lasti)
        site = self._sites.get(key)
        if site is None:
            site = self._sites[key] = Site(code)
        site.calls += 1
        if site.calls & (EVERY - 1) == 0:
            try:
                self._settle(site, inputs, out)
            except Exception as error:
                if not self._failures.report("follow the graph of a forward pass", error):
                    raise
        return out

    def _settle(self, site: Site, inputs: tuple, out: object) -> None:
        """Count what happened to the last graph followed, and follow the new one."""
        if site.follower is not None:
            if site.used:
                note(_USED, 1)
            elif site.follower() is None:
                note(_UNUSED, 1)
                note(_NODES, site.nodes)
            else:
                return  # It is still alive, and may yet be used.
        site.follower = None
        before = self._functions(inputs)
        functions = [each for each in self._functions(out) if each not in before]
        if not functions:
            return
        follower = Follower(site)
        for function in functions:
            function.register_prehook(follower.met)
        site.nodes = site.nodes or _graph_size(functions, before)
        site.used = False
        site.follower = weakref.ref(follower)

    def _functions(self, values: object) -> set[Node]:
        """Return the graph nodes that computed the tensors in nested tuples, lists and dictionaries."""
        return {tensor.grad_fn for tensor in tensors_in(values, self._torch.tensor) if tensor.grad_fn is not None}


def tensors_in(values: object, tensor: type[torch.Tensor] | None) -> Iterator[torch.Tensor]:
    """Yield the plain tensors in nested tuples, lists and dictionaries."""
    if tensor is not None and type(values) is tensor:
        yield values
    elif isinstance(values, (tuple, list)):
        for each in values:
            yield from tensors_in(each, tensor)
    elif isinstance(values, dict):
        yield from tensors_in(list(values.values()), tensor)


def _graph_size(functions: list[Node], before: set[Node]) -> int:
    """Count the nodes between inputs and outputs, except those that only stand for a parameter."""
    seen = before | set(functions)
    waiting = list(functions)
    while waiting and len(seen) < MOST_NODES:
        for each, _ in waiting.pop().next_functions:
            if each is not None and each not in seen and each.next_functions:
                seen.add(each)
                waiting.append(each)
    return len(seen) - len(before)
