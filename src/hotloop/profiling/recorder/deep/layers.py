"""Time by layer: forward and backward of each torch module, in one update out of so many.

Forward is timed around the module's call. Backward is timed node by node: the nodes that a call has added to autograd's
graph bear the name of the innermost module that is timed. Nothing is put into the graph, as torch's own full backward
hooks do, so that what trains with in-place layers trains with this too, to the same bits.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hotloop.clock import now_ns
from hotloop.profiling.recorder.hooks import wrappers
from hotloop.profiling.recorder.hooks.wrappers import hide_frame, skipped_by_warnings

Call = Callable[..., Any]
CLAIMED = "hotloop"
MOST_NODES = 100_000
MOST_LAYERS = 2_000
"""More modules than this are made anew all the time, and are no layers."""


@dataclass(slots=True)
class Layer:
    """What one module took."""

    path: str
    cls: str
    parent: int
    depth: int
    calls: int = 0
    grad_calls: int = 0
    """Of them, those that a backward could follow."""
    forward_ns: int = 0
    backward_calls: int = 0
    """Nodes of the graph that were run for it."""
    backward_ns: int = 0


class _Place(threading.local):
    """Where a thread is: the modules and the nodes that are open."""

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
        self._numbers: dict[tuple[int, int], tuple[Any, int]] = {}
        self._roots: dict[str, int] = {}
        self._place = _Place()
        self._torch: Any = None

    def on_update(self) -> None:
        """Take note of an update; time the next one, or not."""
        self.updates += 1
        self.updates_timed += self.on
        self.on = self.updates % self.every == 0

    def content(self) -> dict[str, Any]:
        """Return what was timed, in rows that JSON takes."""
        names = Layer.__dataclass_fields__
        return {
            "every": self.every, "depth": self.depth, "updates": self.updates, "updates_timed": self.updates_timed,
            "spent_ns": self.spent_ns, "synchronised": self.synchronised,
            "layers": [{name: getattr(each, name) for name in names} for each in list(self.layers)],
        }  # fmt: skip

    def call(self, fn: Call, module: Any, args: Any, kwargs: Any) -> Any:
        """Make a module's call and time it, if it is not nested too deep."""
        opened = self._place.modules
        if len(opened) >= self.depth or len(self.layers) >= MOST_LAYERS:
            return fn(module, *args, **kwargs)
        begin = now_ns()
        spent = self.spent_ns
        number = self._number(module, opened)
        layer = self.layers[number]
        torch = self._torch = self._torch or sys.modules["torch"]
        graph = torch.is_grad_enabled()
        given = _nodes(torch.Tensor, (args, kwargs)) if graph else []
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
            self._claim(out, given, number)
        self.spent_ns += now_ns() - until
        return out

    def _number(self, module: Any, opened: list[int]) -> int:
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
            name = next((name for name, each in above.named_modules() if each is module), cls)
            path = f"{self.layers[parent].path}.{name}"
        self.layers.append(Layer(path, cls, parent, len(opened) + 1))
        self._numbers[parent, id(module)] = weakref.ref(module), len(self.layers) - 1
        return len(self.layers) - 1

    def _claim(self, out: Any, given: list[Any], number: int) -> None:
        """Have the nodes timed that lie between what a module was given and what it made of it."""
        waiting = _nodes(self._torch.Tensor, out)
        seen = 0
        while waiting and seen < MOST_NODES:
            node = waiting.pop()
            if any(node is each for each in given) or type(node).__name__ == "AccumulateGrad":
                continue
            if CLAIMED in node.metadata:
                continue
            node.metadata[CLAIMED] = number
            node.register_prehook(functools.partial(self._before_node, number))
            node.register_hook(functools.partial(self._after_node, number))
            seen += 1
            waiting += [each for each, _ in node.next_functions if each is not None]

    def _before_node(self, number: int, given: Any) -> None:
        begin = now_ns()
        self._synchronise()
        since = now_ns()
        self.spent_ns += since - begin
        self._place.nodes.append(since)

    def _after_node(self, number: int, made: Any, given: Any) -> None:
        self._synchronise()
        until = now_ns()
        opened = self._place.nodes
        if opened:
            layer = self.layers[number]
            layer.backward_ns += until - opened.pop()
            layer.backward_calls += 1
        self.spent_ns += now_ns() - until

    def _synchronise(self) -> None:
        """Wait for the device, if the script uses one: else a call's time would be that of its launch."""
        cuda = getattr(self._torch, "cuda", None)
        if cuda is not None and cuda.is_initialized():
            cuda.synchronize()
            self.synchronised = True


class Timing:
    """Which layers are timed now. One for all wrappers."""

    layers: Layers | None = None


def time_layers(depth: int, every: int) -> None:
    """Ask for the layers to be timed, before the hooks are installed.

    Args:
        depth: Levels of nested modules.
        every: In one update out of so many; 0 for not at all.
    """
    Timing.layers = Layers(depth, every) if depth and every else None


@skipped_by_warnings
def timing(fn: Call) -> Call:
    """Let a module's call be timed by layer, if that was asked for."""
    if Timing.layers is None:
        return fn

    @functools.wraps(fn)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            layers = Timing.layers
            if layers is None or not layers.on or wrappers.is_compiling():
                return fn(self, *args, **kwargs)
            return layers.call(fn, self, args, kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    return __call__


def _nodes(tensor: type, values: Any) -> list[Any]:
    """Return the graph nodes that made the tensors in nested tuples, lists and dictionaries."""
    if isinstance(values, tensor):
        node = values.grad_fn  # type: ignore[attr-defined]
        return [] if node is None else [node]
    if isinstance(values, dict):
        values = list(values.values())
    if not isinstance(values, (tuple, list)):
        return []
    return [node for each in values for node in _nodes(tensor, each)]
