"""A run as curves for TensorBoard: counts, rates, shares of the phases, memory.

The step of a point is the number of environment steps so far, including the training that the run resumes, so that the
curves line up with those the training wrote itself. If no steps were counted, it is the index of the window.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hotloop.errors import HotloopError
from hotloop.profiling.report.view import Report, Timeline
from hotloop.profiling.trace.model import Trace
from hotloop.profiling.trace.reading.call_streams import wall_clock_offset_ns

FILE = "events.out.tfevents.hotloop"
"""TensorBoard recognises its files by "tfevents". The name is fixed, so that a second export replaces the first."""


def write(report: Report, trace: Trace, path: Path) -> None:
    """Write the curves into a new folder."""
    try:
        from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[attr-defined]
        from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[attr-defined]
        from tensorboard.summary.writer.record_writer import RecordWriter
    except ImportError:
        raise HotloopError("tensorboard is not installed: pip install tensorboard, or use --to csv") from None
    path.mkdir()
    timeline = report.timeline
    at_s = (timeline.end_ns + wall_clock_offset_ns(trace)) / 1e9
    counted = timeline.counts["env_steps"]
    steps = counted if counted.any() else np.arange(len(at_s))
    curves = dict(_curves(timeline))
    with open(path / FILE, "wb") as file:
        writer = RecordWriter(file)
        first = float(at_s[0]) if len(at_s) else 0.0
        writer.write(Event(wall_time=first, file_version="brain.Event:2").SerializeToString())
        for i in range(len(at_s)):
            values = [Summary.Value(tag=tag, simple_value=float(curve[i])) for tag, curve in curves.items()]
            event = Event(wall_time=float(at_s[i]), step=int(steps[i]), summary=Summary(value=values))
            writer.write(event.SerializeToString())
        writer.flush()


def _curves(timeline: Timeline) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Yield tags and their values in each window of the loop."""
    for counter, so_far in timeline.counts.items():
        if so_far.any():
            yield f"counts/{counter}", so_far.astype(np.float64)
    for counter, per_s in timeline.rates.items():
        if per_s.any():
            yield f"rates/{counter}_per_s", per_s
    for phase, shares in timeline.phase_shares.items():
        yield f"phases/{phase}", shares
    memory = timeline.memory
    if len(memory.at_ns):
        for name, values in (("resident_bytes", memory.rss_bytes), ("gpu_bytes", memory.gpu_bytes)):
            if values.any():
                yield f"memory/{name}", np.interp(timeline.end_ns, memory.at_ns, values)
