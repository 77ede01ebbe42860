"""Time by layer: forward and backward of each torch module, in one of every N updates.

Forward is timed around the module's call. Backward is timed node by node: the nodes that a call added to autograd's
graph belong to the innermost timed module. Unlike torch's own full backward hooks, this adds nothing to the graph, so
networks with in-place layers still train, with bit-identical results.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import TYPE_CHECKING

from hotloop.clock import now_ns
from hotloop.json_types import Json
from hotloop.profiling.recorder.hooks import wrappers
from hotloop.profiling.recorder.hooks.wrappers import Method, P, R, hide_frame, skipped_by_warnings

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.autograd.graph import Node

CLAIMED = "hotloop"
MOST_NODES = 100_000
MOST_LAYERS = 2_000
"""More modules than this are temporary objects and not layers."""


@dataclass(slots=True)
class Layer:
    """The time of one module."""

    path: str
    cls: str
    parent: int
    depth: int
    calls: int = 0
    grad_calls: int = 0
    """Calls that built a graph."""
    forward_ns: int = 0
    backward_calls: int = 0
    """How many of its graph nodes were run."""
    backward_ns: int = 0


class _Place(threading.local):
    """The modules and graph nodes that are running in this thread, outermost first."""

    def __init__(self) -> None:
        self.modules: list[int] = []
        self.nodes: list[int] = []


class Layers:
    """The layers of all networks, timed while `on`."""

    def __init__(self, depth: int, every: int) -> None:
        self.depth = depth
        self.every = every
        self.on = False
        self.layers: list[Layer] = []
        self.updates = self.updates_timed = self.spent_ns = 0
        self.synchronised = False
        self._numbers: dict[tuple[int, int], tuple[weakref.ref[nn.Module], int]] = {}
        self._roots: dict[str, int] = {}
        self._place = _Place()
        self._torch: ModuleType | None = None

    def on_update(self) -> None:
        """Count an update; decide whether to time the next one."""
        self.updates += 1
        self.updates_timed += self.on
        self.on = self.updates % self.every == 0

    def content(self) -> dict[str, Json]:
        """Return the measured times as JSON."""
        return {
            "every": self.every,
            "depth": self.depth,
            "updates": self.updates,
            "updates_timed": self.updates_timed,
            "spent_ns": self.spent_ns,
            "synchronised": self.synchronised,
            "layers": [asdict(each) for each in list(self.layers)],
        }

    def call(self, fn: Method[nn.Module, P, R], module: nn.Module, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a module and time it, if it is not nested too deep."""
        opened = self._place.modules
        if len(opened) >= self.depth or len(self.layers) >= MOST_LAYERS:
            return fn(module, *args, **kwargs)
        begin = now_ns()
        spent = self.spent_ns
        number = self._number(module, opened)
        layer = self.layers[number]
        torch = self._torch = self._torch or sys.modules["torch"]
        graph = torch.is_grad_enabled()
        given = _nodes((args, kwargs), torch.Tensor) if graph else []
        opened.append(number)
        self._synchronise()
        since = now_ns()
        self.spent_ns += since - begin
        try:
            out = fn(module, *args, **kwargs)
            self._synchronise()
            until = now_ns()
        finally:
            opened.pop()
        inner = self.spent_ns - spent - (since - begin)
        layer.calls += 1
        layer.forward_ns += max(until - since - inner, 0)
        if graph:
            layer.grad_calls += 1
            self._claim(_nodes(out, torch.Tensor), given, number)
        self.spent_ns += now_ns() - until
        return out

    def _number(self, module: nn.Module, opened: list[int]) -> int:
        """Return the number of a module below the one that is open."""
        parent = opened[-1] if opened else -1
        known = self._numbers.get((parent, id(module)))
        if known is not None and known[0]() is module:
            return known[1]
        cls = type(module).__name__
        if parent < 0:
            self._roots[cls] = self._roots.get(cls, 0) + 1
            path = cls if self._roots[cls] == 1 else f"{cls}#{self._roots[cls]}"
        else:
            above = next(ref for ref, number in self._numbers.values() if number == parent)()
            named = above.named_modules() if above is not None else ()
            name = next((name for name, each in named if each is module), cls)
            path = f"{self.layers[parent].path}.{name}"
        self.layers.append(Layer(path, cls, parent, len(opened) + 1))
        self._numbers[parent, id(module)] = weakref.ref(module), len(self.layers) - 1
        return len(self.layers) - 1

    def _claim(self, waiting: list[Node], given: list[Node], number: int) -> None:
        """Time the graph nodes between a module's inputs and its outputs (`waiting`)."""
        seen = 0
        while waiting and seen < MOST_NODES:
            node = waiting.pop()
            if any(node is each for each in given) or type(node).__name__ == "AccumulateGrad":
                continue
            metadata: dict[str, int] = getattr(node, "metadata", {})
            if CLAIMED in metadata:
                continue
            metadata[CLAIMED] = number
            node.register_prehook(functools.partial(self._before_node, number))
            node.register_hook(functools.partial(self._after_node, number))
            seen += 1
            waiting += [each for each, _ in node.next_functions if each is not None]

    def _before_node(self, number: int, given: tuple[Tensor, ...]) -> None:
        begin = now_ns()
        self._synchronise()
        since = now_ns()
        self.spent_ns += since - begin
        self._place.nodes.append(since)

    def _after_node(self, number: int, made: tuple[Tensor, ...], given: tuple[Tensor, ...]) -> None:
        self._synchronise()
        until = now_ns()
        opened = self._place.nodes
        if opened:
            layer = self.layers[number]
            layer.backward_ns += until - opened.pop()
            layer.backward_calls += 1
        self.spent_ns += now_ns() - until

    def _synchronise(self) -> None:
        """Wait for the device, if the script uses one. Otherwise only launching the work would be timed."""
        cuda = getattr(self._torch, "cuda", None)
        if cuda is not None and cuda.is_initialized():
            cuda.synchronize()
            self.synchronised = True


@skipped_by_warnings
def timing(fn: Method[nn.Module, P, R], layers: Layers | None) -> Method[nn.Module, P, R]:
    """Time a module's call by layer, if layers are to be timed."""
    if layers is None:
        return fn

    @functools.wraps(fn)
    def __call__(self: nn.Module, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            if not layers.on or wrappers.is_compiling():
                return fn(self, *args, **kwargs)
            return layers.call(fn, self, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    return __call__


def _nodes(values: object, tensor: type[Tensor]) -> list[Node]:
    """Return the graph nodes that made the tensors in nested tuples, lists and dictionaries."""
    if isinstance(values, tensor):
        return [] if values.grad_fn is None else [values.grad_fn]
    if isinstance(values, dict):
        values = list(values.values())
    if not isinstance(values, (tuple, list)):
        return []
    return [node for each in values for node in _nodes(each, tensor)]
