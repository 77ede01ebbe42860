"""How much arithmetic a module call is, estimated once for each module and input shape.

The first call of a kind leaves the output shapes of its Linear and convolution layers, from which their
multiplications and additions follow; later calls look the sum up. What is computed outside such layers is
not seen, so the figure is a lower bound.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Any

from hotloop.record.hooks.patching import Subject
from hotloop.record.hooks.wrappers import At
from hotloop.spans import count

_known: dict[int, tuple[Any, dict[Any, int]]] = {}
"""Module id to a weak reference to it and the FLOPs of its calls by input shape."""


def layer_flops(layer: Any, out: Any) -> int:
    """Return the FLOPs of one call of a Linear or convolution layer, from its output; 0 for any other."""
    shape = getattr(out, "shape", None)
    if shape is None:
        return 0
    inputs = getattr(layer, "in_features", None)
    if inputs is not None and type(layer).__name__.endswith("Linear"):
        return 2 * math.prod(shape) * inputs
    kernel = getattr(layer, "kernel_size", None)
    if kernel is None or not hasattr(layer, "in_channels"):
        return 0
    return 2 * math.prod(shape) * layer.in_channels // layer.groups * math.prod(kernel)


def note_layer(at: At, layer: Any, out: Any) -> Any:
    """Add a layer's FLOPs to the first call that is being looked at, if one is. Returns `out`."""
    if at.layers is not None:
        at.layers.append(layer_flops(layer, out))
    return out


def call_counted(at: At, call: Callable[..., Any], module: Any, args: Any, kwargs: Any) -> Any:
    """Make an outermost module call and count its FLOPs."""
    shape = getattr(args[0], "shape", None) if args else None
    entry = _known.get(id(module))
    if entry is None or entry[0]() is not module:
        entry = _known[id(module)] = (weakref.ref(module), {})
    flops = entry[1].get(shape)
    if flops is None:
        at.layers = []
        try:
            out = note_layer(at, module, call(module, *args, **kwargs))
            flops = entry[1][shape] = sum(at.layers)
        finally:
            at.layers = None
    else:
        out = call(module, *args, **kwargs)
    if flops:
        count("flops", flops)
        if _grad.enabled():
            at.graph_flops += flops
    return out


class _Grad:
    enabled: Callable[[], bool] = staticmethod(bool)


_grad = _Grad()


def on_torch(torch: Any, patches: Any) -> None:
    """Learn to ask torch whether a backward can follow."""
    _grad.enabled = torch.is_grad_enabled


SUBJECT = Subject(on_import={"torch": on_torch})
