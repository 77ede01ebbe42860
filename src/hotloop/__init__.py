"""hotloop: see, explain, prove and remove what makes reinforcement-learning training slow.

Importing it is cheap: what is heavy (pyarrow, matplotlib, torch's hooks) is imported when it is used.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from hotloop.errors import HotloopError
from hotloop.spans import Phase, count, span

if TYPE_CHECKING:
    from hotloop.explain import explain
    from hotloop.explain.finding import Finding
    from hotloop.record.options import RecordOptions
    from hotloop.record.session import record
    from hotloop.trace.load import load
    from hotloop.trace.model import Trace

__all__ = [
    "Finding", "HotloopError", "Phase", "RecordOptions", "Trace", "__version__",
    "count", "explain", "load", "record", "span",
]  # fmt: skip

_LATER = {
    "Finding": "hotloop.explain.finding",
    "RecordOptions": "hotloop.record.options",
    "Trace": "hotloop.trace.model",
    "explain": "hotloop.explain",
    "load": "hotloop.trace.load",
    "record": "hotloop.record.session",
}


__path__.append(os.path.join(__path__[0], "deprecated"))  # names of version 0.1, such as hotloop.replay


def __getattr__(name: str) -> Any:
    import importlib

    if name == "__version__":
        import importlib.metadata

        return importlib.metadata.version("hotloop")
    if name in _LATER:
        found = getattr(importlib.import_module(_LATER[name]), name)
        if name in ("Trace", "load"):
            _show_traces()
        globals()[name] = found
        return found
    raise AttributeError(f"module 'hotloop' has no attribute {name!r}")


def _show_traces() -> None:
    """Tell traces how to show themselves in a notebook: their own package must not know of reports."""
    import importlib

    display = importlib.import_module("hotloop.trace.display")
    display.show_with(lambda trace: importlib.import_module("hotloop.report.notebook").as_html(trace))
