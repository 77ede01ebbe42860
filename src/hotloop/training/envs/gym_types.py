"""Types of the values that go through Gymnasium's interface."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Info = dict[str, Any]
"""An info, or the options of `reset`. Gymnasium declares both like this."""

Observations = NDArray[np.uint8] | NDArray[np.float32]
Flags = NDArray[np.bool_]
LaneValues = NDArray[np.float32] | Flags
"""What `VectorEnv.step` returns for each lane: rewards, terminated, truncated."""

StepResult = tuple[Observations, NDArray[np.float32], Flags, Flags, Info]
Frame = NDArray[np.uint8] | str
"""What `render` returns: pixels [H, W, 3] or text."""
