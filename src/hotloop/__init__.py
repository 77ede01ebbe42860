"""hotloop finds out why reinforcement-learning training is slow, and has fast parts to train with.

Importing it is cheap: heavy modules (pyarrow, matplotlib, the hooks for torch) are imported when they are used.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from hotloop.errors import HotloopError
from hotloop.phases import Phase
from hotloop.spans import count, span

if TYPE_CHECKING:
    from hotloop.profiling.diagnosis import explain
    from hotloop.profiling.diagnosis.finding import Finding
    from hotloop.profiling.recorder.record_options import RecordOptions
    from hotloop.profiling.recorder.session import record
    from hotloop.profiling.trace.load import load
    from hotloop.profiling.trace.model import Trace

__all__ = [
    "Finding",
    "HotloopError",
    "Phase",
    "RecordOptions",
    "Trace",
    "__version__",
    "count",
    "explain",
    "load",
    "record",
    "span",
]

_LATER = {
    "Finding": "hotloop.profiling.diagnosis.finding",
    "RecordOptions": "hotloop.profiling.recorder.record_options",
    "Trace": "hotloop.profiling.trace.model",
    "explain": "hotloop.profiling.diagnosis",
    "load": "hotloop.profiling.trace.load",
    "record": "hotloop.profiling.recorder.session",
}

__path__.append(os.path.join(__path__[0], "deprecated"))  # names of version 0.1, such as hotloop.replay


def __getattr__(name: str) -> Any:
    import importlib

    if name == "__version__":
        import importlib.metadata

        return importlib.metadata.version("hotloop")
    if name in _LATER:
        found = getattr(importlib.import_module(_LATER[name]), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module 'hotloop' has no attribute {name!r}")
