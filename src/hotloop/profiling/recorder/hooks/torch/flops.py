"""Estimates the FLOPs of a module call, once for each module and input shape.

The first call of a kind notes the output shapes of its Linear and convolution layers, which give the number of
multiplications and additions; later calls look the sum up (`modules`). Anything computed outside such layers is not
counted, so the figure is a lower bound.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hotloop.profiling.recorder.hooks.wrappers import Failures, class_name

if TYPE_CHECKING:
    from torch import nn


def layer_flops(layer: nn.Module, out: object, failures: Failures) -> int:
    """Return the FLOPs of one call of a Linear or convolution layer, from its output; 0 for any other."""
    try:
        shape = getattr(out, "shape", None)
        # While torch.jit traces, sizes are tensors, and arithmetic with them would be traced, too.
        if shape is None or not all(type(size) is int for size in shape):
            return 0
        inputs = getattr(layer, "in_features", None)
        if inputs is not None and class_name(type(layer)).endswith("Linear"):
            return int(2 * math.prod(shape) * inputs)
        kernel = getattr(layer, "kernel_size", None)
        channels = getattr(layer, "in_channels", None)
        if kernel is None or channels is None:
            return 0
        return int(2 * math.prod(shape) * channels // getattr(layer, "groups", 1) * math.prod(kernel))
    except Exception as error:
        if not failures.report("estimate the FLOPs of a layer", error):
            raise
        return 0
