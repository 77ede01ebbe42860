"""A run as curves for TensorBoard: counts, rates, shares of the phases, memory.

The step is the number of environment steps done, those of a training that the run resumes included, so that the curves
lie beside those the training wrote itself; the wall time of each point is when it was. Where no steps were counted, the
step is the number of the window.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hotloop.counters import COUNTERS
from hotloop.errors import HotloopError
from hotloop.profiling.trace.model import Trace
from hotloop.profiling.trace.reading.window_streams import wall_clock_offset_ns
from hotloop.profiling.trace.summary import count_over_time, rate_over_time

FILE = "events.out.tfevents.hotloop"
"""TensorBoard knows its files by the word in the middle. One name, so that a second export replaces the first."""
Values = NDArray[np.float64]


def write(trace: Trace, path: Path) -> None:
    """Write the curves into a new folder."""
    try:
        from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[attr-defined]
        from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[attr-defined]
        from tensorboard.summary.writer.record_writer import RecordWriter
    except ImportError:
        raise HotloopError("tensorboard is not installed: pip install tensorboard, or use --to csv") from None
    path.mkdir()
    windows = trace.main.windows
    at_s = (windows.end_ns[windows.in_loop] + wall_clock_offset_ns(trace)) / 1e9
    steps = _steps(trace)
    curves = dict(_curves(trace))
    with open(path / FILE, "wb") as file:
        writer = RecordWriter(file)
        first = float(at_s[0]) if len(at_s) else 0.0
        writer.write(Event(wall_time=first, file_version="brain.Event:2").SerializeToString())
        for i in range(len(at_s)):
            values = [Summary.Value(tag=tag, simple_value=float(curve[i])) for tag, curve in curves.items()]
            event = Event(wall_time=float(at_s[i]), step=int(steps[i]), summary=Summary(value=values))
            writer.write(event.SerializeToString())
        writer.flush()


def _steps(trace: Trace) -> NDArray[np.int64]:
    """Return the step of each window of the loop: environment steps up to its end."""
    windows = trace.main.windows
    counted = count_over_time(trace, "env_steps")
    return counted if counted.any() else np.arange(windows.in_loop.sum())


def _curves(trace: Trace) -> Iterator[tuple[str, Values]]:
    """Yield tags and their values in each window of the loop."""
    windows, memory = trace.main.windows, trace.main.memory
    inside = windows.in_loop
    for counter in COUNTERS:
        so_far = count_over_time(trace, counter)
        if so_far.any():
            yield f"counts/{counter}", so_far.astype(np.float64)
        _, per_s = rate_over_time(trace, counter)
        if per_s.any():
            yield f"rates/{counter}_per_s", per_s
    phases = {str(phase): ns[inside] for phase, ns in windows.phase_self_ns.items()}
    # Shares of what was measured: what recording cost is taken off already, so windows are not quite full.
    measured = np.maximum(np.sum(list(phases.values()), axis=0), 1) if phases else 1.0
    for phase, ns in phases.items():
        if ns.any():
            yield f"phases/{phase}", ns / measured
    ends = windows.end_ns[inside]
    if len(memory.at_ns):
        for name, values in (("resident_bytes", memory.rss_bytes), ("gpu_bytes", memory.gpu_bytes)):
            if values.any():
                yield f"memory/{name}", np.interp(ends, memory.at_ns, values)
