"""Deep profiling of a run: function calls, torch operators and layers, corrected for the overhead of tracing.

Each kind has its own file, which exists only if it was requested. Its numbers cover the iterations that were traced;
these are not in the run's other tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from hotloop.counters import COUNTERS
from hotloop.profiling.trace.reading.json_schemas import (
    CallRecord,
    FunctionRecord,
    LayerRecord,
    LayersRecord,
    LookRecord,
)

Optimisable = Literal["yes", "calls", "no"]
SHORT_S = 20e-6
"""A library function that takes less than this per call does little each time: fewer, larger calls would help."""
LIKE = 0.1
"""Times are compared only if updates per step differ by less than this between traced iterations and the loop."""


@dataclass(frozen=True, slots=True)
class Look:
    """How function or operator tracing went."""

    state: str
    """"done", "cut" (the run ended first), "looking" (in progress), "waiting" (warm-up), or "none"."""
    asked: int
    """Iterations requested."""
    iterations: int
    updates: int
    warmup: int
    """Iterations before tracing started."""
    iteration_s: float
    """Time of a traced iteration."""
    untraced_s: float | None
    """Time of an iteration in the rest of the run; None if unknown."""
    calls: int
    """Traced function or operator calls."""
    call_cost_s: float
    """Average total overhead of tracing a call."""
    reason: str = ""
    """Why there are no results."""

    @property
    def factor(self) -> float | None:
        """Slow-down of an iteration by tracing."""
        return self.iteration_s / self.untraced_s if self.untraced_s else None


@dataclass(frozen=True, slots=True)
class LayersLook:
    """How the timing of layers went."""

    every: int
    updates: int
    updates_timed: int
    synchronised: bool
    cost_s: float
    """Lower bound of the timing overhead, which is contained in the phases but not in the layers."""


@dataclass(frozen=True, slots=True)
class FunctionRow:
    """A function, summed over all its callers."""

    name: str
    file: str
    line: int
    kind: str
    """"own" code, a "library"'s, or "native": not Python."""
    optimisable: Optimisable
    """"yes": own Python code. "calls": own code calls it often, for little each time. "no": neither."""
    calls: int
    calls_per_iteration: float
    self_s: float
    total_s: float
    share: float
    """Self time as a share of the iterations' time."""
    self_mean_s: float
    total_mean_s: float


@dataclass(frozen=True, slots=True)
class CallRow:
    """A row of the call tree of functions."""

    depth: int
    name: str
    kind: str
    calls: int
    total_s: float
    self_s: float
    share: float
    """Total time as a share of the iterations' time."""
    last: bool


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """A torch operator."""

    name: str
    calls: int
    calls_per_iteration: float
    self_s: float
    total_s: float
    share: float
    """Self time as a share of the iterations' time."""
    self_mean_s: float
    device_s: float


@dataclass(frozen=True, slots=True)
class LayerRow:
    """A torch module, by its position in the network."""

    name: str
    module: str
    """Its class."""
    depth: int
    calls: int
    grad_calls: int
    """Calls with gradients enabled."""
    forward_s: float
    backward_s: float
    """Both including submodules."""
    share: float
    """Share of the forward and backward time of all networks."""
    forward_mean_s: float
    backward_mean_s: float
    """Per call with gradients enabled."""


@dataclass(frozen=True, slots=True)
class Traced:
    """All results of deep profiling."""

    functions: tuple[FunctionRow, ...] = ()
    function_tree: tuple[CallRow, ...] = ()
    operators: tuple[OperatorRow, ...] = ()
    layers: tuple[LayerRow, ...] = ()
    functions_look: Look | None = None
    operators_look: Look | None = None
    layers_look: LayersLook | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    """Counts of the traced iterations. Recording is paused during tracing, so no other table has them."""


NOTHING = Traced()


@dataclass(frozen=True, slots=True)
class Pace:
    """The loop without deep profiling."""

    env_steps: int
    updates: int
    wall_ns: int


@dataclass(frozen=True, slots=True)
class LookFiles:
    """The files of deep profiling; None for those that do not exist."""

    functions: LookRecord | None = None
    operators: LookRecord | None = None
    layers: LayersRecord | None = None


def build_traced(files: LookFiles, pace: Pace) -> Traced:
    """Return the results of deep profiling so far."""
    traced = NOTHING
    if files.functions is not None:
        rows, tree, look = _functions(files.functions, pace)
        traced = Traced(functions=rows, function_tree=tree, functions_look=look)
    if files.operators is not None:
        rows, look = _operators(files.operators, pace)
        traced = replace(traced, operators=rows, operators_look=look)
    if (seen := files.layers) is not None:
        look = LayersLook(seen.every, seen.updates, seen.updates_timed, seen.synchronised, seen.spent_ns / 1e9)
        traced = replace(traced, layers=_layers(seen), layers_look=look)
    paused = [each for each in (files.functions, files.operators) if each is not None]
    return replace(traced, counts={name: sum(getattr(each, name) for each in paused) for name in COUNTERS})


def _untraced_s(record: LookRecord, pace: Pace) -> float | None:
    """Return the time of an iteration without tracing, if the traced iterations were like the others."""
    steps, iterations = record.env_steps, record.iterations
    if not (steps and iterations and pace.env_steps > 0):
        return None
    here, there = record.updates / steps, pace.updates / pace.env_steps
    if abs(here - there) > LIKE * max(here, there):
        return None
    return pace.wall_ns / pace.env_steps * steps / iterations / 1e9


def _look(record: LookRecord, pace: Pace, calls: int) -> Look:
    iterations = record.iterations
    iteration_s = record.wall_ns / iterations / 1e9 if iterations else 0.0
    untraced_s = _untraced_s(record, pace)
    added_s = (iteration_s - untraced_s) * iterations if untraced_s else 0.0
    return Look(
        state=record.state,
        asked=record.asked,
        iterations=iterations,
        updates=record.updates,
        warmup=record.warmup,
        iteration_s=iteration_s,
        untraced_s=untraced_s,
        calls=calls,
        call_cost_s=max(added_s, 0.0) / calls if calls else 0.0,
        reason=record.reason,
    )


def _functions(seen: LookRecord, pace: Pace) -> tuple[tuple[FunctionRow, ...], tuple[CallRow, ...], Look]:
    rows = seen.functions
    look = _look(seen, pace, seen.events // 2)
    if not rows:
        return (), (), look
    scale = python_scale(seen, look)
    own_ns = [row.self_ns * (1.0 if row.kind == "native" else scale) for row in rows]
    whole = sum(own_ns) or 1.0
    iterations = max(look.iterations, 1)
    found = [
        _function_row(row, own, row.python_ns * scale + row.native_ns, whole, iterations)
        for row, own in zip(rows, own_ns, strict=True)
    ]
    found.sort(key=lambda row: (-row.self_s, row.name))
    return tuple(found), tuple(_call_rows(seen.tree, {row.function: row for row in rows}, scale, whole)), look


def python_scale(seen: LookRecord, look: Look) -> float:
    """Return the factor that corrects times of Python code, because tracing slows the interpreter down.

    Native functions are not slowed down. The factor follows from an iteration's time without tracing, if that is known.
    It is limited by the slow-down of a loop without calls, which is the largest possible.
    """
    least = 1.0 / seen.slowdown
    python = sum(row.self_ns for row in seen.functions if row.kind != "native")
    native = sum(row.self_ns for row in seen.functions if row.kind == "native")
    if look.untraced_s is None or not python:
        return (1.0 + least) / 2
    return min(max((look.untraced_s * look.iterations * 1e9 - native) / python, least), 1.0)


def _function_row(row: FunctionRecord, own_ns: float, total_ns: float, whole: float, iterations: int) -> FunctionRow:
    calls = row.calls
    mean_s = own_ns / calls / 1e9 if calls else 0.0
    return FunctionRow(
        name=row.name,
        file=row.file,
        line=row.line,
        kind=row.kind,
        optimisable=optimisable(row, mean_s, iterations),
        calls=calls,
        calls_per_iteration=calls / iterations,
        self_s=own_ns / 1e9,
        total_s=total_ns / 1e9,
        share=own_ns / whole,
        self_mean_s=mean_s,
        total_mean_s=total_ns / calls / 1e9 if calls else 0.0,
    )


def optimisable(row: FunctionRecord, mean_s: float, iterations: int) -> Optimisable:
    """Return how a function can be optimised: see `FunctionRow.optimisable`."""
    if row.kind == "own":
        return "yes"
    often = row.calls_from_own > iterations and 2 * row.calls_from_own >= row.calls
    return "calls" if often and mean_s < SHORT_S else "no"


def _call_rows(
    tree: tuple[CallRecord, ...], functions: dict[int, FunctionRecord], scale: float, whole: float
) -> list[CallRow]:
    """Return the call tree as indented rows, largest branch first."""
    total = [row.python_ns * scale + row.native_ns for row in tree]
    below: dict[int, list[int]] = {}
    for i in sorted(range(len(tree)), key=lambda i: total[i]):
        if tree[i].function in functions:
            below.setdefault(tree[i].parent, []).append(i)
    rows: list[CallRow] = []
    waiting = [(i, 0) for i in below.get(-1, ())]
    while waiting:
        i, depth = waiting.pop()
        row, function = tree[i], functions[tree[i].function]
        self_s = row.self_ns * (1.0 if function.kind == "native" else scale) / 1e9
        share, last = total[i] / whole, i == below[row.parent][0]
        rows.append(CallRow(depth, function.name, function.kind, row.calls, total[i] / 1e9, self_s, share, last))
        waiting += [(each, depth + 1) for each in below.get(i, ())]
    return rows


def _operators(seen: LookRecord, pace: Pace) -> tuple[tuple[OperatorRow, ...], Look]:
    wall_ns = seen.wall_ns
    look = _look(seen, pace, seen.events)
    iterations = max(look.iterations, 1)
    return tuple(
        OperatorRow(
            name=row.name,
            calls=row.calls,
            calls_per_iteration=row.calls / iterations,
            self_s=row.self_ns / 1e9,
            total_s=row.total_ns / 1e9,
            share=row.self_ns / wall_ns if wall_ns else 0.0,
            self_mean_s=row.self_ns / row.calls / 1e9 if row.calls else 0.0,
            device_s=row.device_ns / 1e9,
        )
        for row in seen.operators
    ), look


def _layers(seen: LayersRecord) -> tuple[LayerRow, ...]:
    rows = seen.layers
    backward = [row.backward_ns for row in rows]
    for i in range(len(rows) - 1, -1, -1):
        if rows[i].parent >= 0:
            backward[rows[i].parent] += backward[i]
    whole = sum(row.forward_ns + backward[i] for i, row in enumerate(rows) if row.parent < 0) or 1
    below: dict[int, list[int]] = {}
    for i in reversed(range(len(rows))):
        below.setdefault(rows[i].parent, []).append(i)
    found: list[LayerRow] = []
    waiting = below.get(-1, [])
    while waiting:
        i = waiting.pop()
        found.append(_layer_row(rows[i], backward[i], whole))
        waiting += below.get(i, ())
    return tuple(found)


def _layer_row(row: LayerRecord, backward_ns: int, whole: int) -> LayerRow:
    return LayerRow(
        name=row.path,
        module=row.cls,
        depth=row.depth,
        calls=row.calls,
        grad_calls=row.grad_calls,
        forward_s=row.forward_ns / 1e9,
        backward_s=backward_ns / 1e9,
        share=(row.forward_ns + backward_ns) / whole,
        forward_mean_s=row.forward_ns / max(row.calls, 1) / 1e9,
        backward_mean_s=backward_ns / max(row.grad_calls, 1) / 1e9,
    )
