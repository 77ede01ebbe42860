"""The JSON files of a run directory, field by field. `docs/run-directory.md` says what they mean.

These classes decide what is read: types and ranges are in the annotations, and `decode` refuses anything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from hotloop.profiling.trace.host import Host
from hotloop.profiling.trace.reading import limits
from hotloop.profiling.trace.reading.decode import Amount, Between, Clock, Cost, Count, Index, UnixNs

Written = Literal["running", "finished", "failed", "interrupted"]
"""How a run says it is; that one was killed it cannot say itself."""
LookState = Literal["waiting", "looking", "done", "cut", "none"]
Place = tuple[str, Index]
"""File and line."""
Column = Annotated[int, Between(-1, limits.ROWS)]
"""A column or line; -1 if it is not known."""
Parent = Annotated[int, Between(-1, limits.ROWS)]
Ratio = Annotated[float, Between(1, 1_000)]


@dataclass(frozen=True, slots=True)
class LineCalls:
    """How often a line called something, in `calls.json`."""

    file: str
    line: Index
    callee: str
    calls: Count


@dataclass(frozen=True, slots=True)
class FunctionCalls:
    """How often a function was called, in `calls.json`."""

    file: str
    function: str
    line: Index
    calls: Count


@dataclass(frozen=True, slots=True)
class CallsRecord:
    """`calls.json`: what was counted in short windows of the loop."""

    windows: Count = 0
    counts: Mapping[str, Count] = field(default_factory=dict)
    lines: tuple[LineCalls, ...] = ()
    functions: tuple[FunctionCalls, ...] = ()


@dataclass(frozen=True, slots=True)
class ObservedPlace:
    """An instruction that ran while the main thread was followed, in `observed.json`."""

    id: Index
    file: str
    function: str
    first_line: Index
    line: Index
    end_line: Column
    column: Column
    end_column: Column
    operation: str
    callee: str
    """What it calls, by its full name; "" if it calls nothing."""
    operands: tuple[str, ...]
    """Types, lengths and shapes of what it worked on when it was first seen."""


@dataclass(frozen=True, slots=True)
class ObservedWindow:
    """What happened while the main thread was followed, in `observed.json`."""

    counts: Mapping[str, Count] = field(default_factory=dict)
    rows: tuple[str, ...] = ()
    """Place, frame, number of operands, the operands and the results: all as numbers."""


@dataclass(frozen=True, slots=True)
class ObservedRecord:
    """`observed.json`: what was seen while the main thread was followed through its own code."""

    places: tuple[ObservedPlace, ...] = ()
    windows: tuple[ObservedWindow, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A file of the user, in `sources.json`."""

    file: str
    digest: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SourcesRecord:
    """`sources.json`."""

    files: tuple[SourceRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine, in `run.json`."""

    cores: Index | None = None
    memory_bytes: Count | None = None
    cpu: str | None = None
    platform: str | None = None
    python: str | None = None
    gpu: str | None = None
    gpu_memory_bytes: Count | None = None
    peak_flops: Annotated[float, Between(0, 1e30)] | None = None
    peak_flops_1: Annotated[float, Between(0, 1e30)] | None = None
    gpu_peak_flops: Annotated[float, Between(0, 1e30)] | None = None
    copy_bytes_per_s: Amount | None = None
    gpu_copy_bytes_per_s: Amount | None = None


@dataclass(frozen=True, slots=True)
class Torch:
    """Torch's settings, in `run.json`."""

    threads: Index | None = None
    set_at: Place | None = None
    gradients_dropped_at: Place | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """What of the recording options a reader needs, in `run.json`."""

    after_steps: Count = 0
    after_s: Amount = 0.0


@dataclass(frozen=True, slots=True)
class Manifest:
    """`run.json`."""

    format: Index
    started_unix_ns: UnixNs
    name: str = ""
    state: Written | None = None
    pid: Index | None = None
    process_create_time: Amount | None = None
    host: Host | None = None
    """Where that process is; None in recordings of an earlier version."""
    command: tuple[str, ...] = ()
    options: Options | None = None
    machine: Machine | None = None
    versions: Mapping[str, str] | None = None
    torch: Torch | None = None
    exit_code: int | None = None
    seconds: Amount | None = None
    recorder_failed: str = ""
    counts_before: Mapping[str, Count] = field(default_factory=dict)
    """Counts of the training that this one resumes, by counter."""


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """`process.json`."""

    pid: Index
    parent_pid: Index
    main: bool
    clock_ns: Clock
    wall_ns: UnixNs


@dataclass(frozen=True, slots=True)
class StateRecord:
    """`state.json`."""

    state: Literal["running", "finished"] = "running"
    process: str = "MainProcess"
    start_ns: Clock | None = None
    loop_start_ns: Clock | None = None
    span_ns: Cost = 0.0
    span_error_ns: Cost = 0.0
    tight_ns: Cost = 1.0
    wrap_ns: Cost = 0.0
    step_wrap_ns: Cost = 0.0
    quick_wrap_ns: Cost = 0.0
    module_wrap_ns: Cost = 0.0
    tally_wrap_ns: Cost | None = None
    within_ns: Mapping[Index, Cost] = field(default_factory=dict)
    sampler_cpu_ns: Count = 0
    own_process: bool = False
    """Whether the recorder was a process of its own."""
    cores: Count = 1
    looked: Mapping[Index, Count] = field(default_factory=dict)
    counter_events: Count = 0
    tally_events: Count = 0
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FunctionRecord:
    """A function of `functions.json`."""

    name: str
    file: str
    line: Index
    kind: Literal["own", "library", "native"]
    function: Index
    calls: Count
    self_ns: Count
    python_ns: Count
    native_ns: Count
    calls_from_own: Count


@dataclass(frozen=True, slots=True)
class CallRecord:
    """A row of its call tree. A parent comes before its children."""

    parent: Parent
    function: Index
    calls: Count
    self_ns: Count
    python_ns: Count
    native_ns: Count


@dataclass(frozen=True, slots=True)
class OperatorRecord:
    """An operator of `operators.json`."""

    name: str
    calls: Count
    self_ns: Count
    total_ns: Count
    device_ns: Count


@dataclass(frozen=True, slots=True)
class LookRecord:
    """`functions.json` or `operators.json`: the first has functions, the second operators."""

    state: LookState = "none"
    asked: Count = 0
    iterations: Count = 0
    env_steps: Count = 0
    frames: Count = 0
    updates: Count = 0
    episodes: Count = 0
    warmup: Count = 0
    wall_ns: Count = 0
    events: Count = 0
    reason: str = ""
    slowdown: Ratio = 1.0
    functions: tuple[FunctionRecord, ...] = ()
    tree: tuple[CallRecord, ...] = ()
    operators: tuple[OperatorRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class LayerRecord:
    """A layer of `layers.json`. A parent comes before its children."""

    path: str
    cls: str
    parent: Parent
    depth: Annotated[int, Between(0, limits.DEPTH)]
    calls: Count
    grad_calls: Count
    forward_ns: Count
    backward_ns: Count


@dataclass(frozen=True, slots=True)
class LayersRecord:
    """`layers.json`."""

    every: Count
    updates: Count
    updates_timed: Count
    spent_ns: Count
    synchronised: bool
    layers: tuple[LayerRecord, ...]
