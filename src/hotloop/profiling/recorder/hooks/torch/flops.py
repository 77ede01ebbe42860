"""How much arithmetic a module call is, estimated once for each module and input shape.

The first call of a kind leaves the output shapes of its Linear and convolution layers, from which their
multiplications and additions follow; later calls look the sum up (`modules`). What is computed outside such layers is
not seen, so the figure is a lower bound.
"""

from __future__ import annotations

import math
from typing import Any

from hotloop.profiling.recorder.hooks.wrappers import class_name, report_failure


def layer_flops(layer: Any, out: Any) -> int:
    """Return the FLOPs of one call of a Linear or convolution layer, from its output; 0 for any other."""
    try:
        shape = getattr(out, "shape", None)
        # While torch.jit traces, sizes are tensors: whatever is computed with them is traced, too.
        if shape is None or not all(type(size) is int for size in shape):
            return 0
        inputs = getattr(layer, "in_features", None)
        if inputs is not None and class_name(type(layer)).endswith("Linear"):
            return int(2 * math.prod(shape) * inputs)
        kernel = getattr(layer, "kernel_size", None)
        if kernel is None or not hasattr(layer, "in_channels"):
            return 0
        return int(2 * math.prod(shape) * layer.in_channels // layer.groups * math.prod(kernel))
    except Exception as error:
        if not report_failure("tell how much arithmetic a layer is", error):
            raise
        return 0
