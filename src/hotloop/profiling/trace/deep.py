"""What the closer looks of a run saw: function calls, torch operators, layers, corrected for what looking cost.

Each look has a file of its own, which is not there if it was not asked for. Its numbers are of the iterations that it
took, which are not in the run's other tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from hotloop.counters import COUNTERS
from hotloop.profiling.trace.reading.records import CallRecord, FunctionRecord, LayerRecord, LayersRecord, LookRecord

Optimisable = Literal["yes", "calls", "no"]
SHORT_S = 20e-6
"""A foreign function that takes less than this is called for little each time: fewer, larger calls would help."""
LIKE = 0.1
"""How far updates a step may differ between the look and the loop, for their times to be compared."""


@dataclass(frozen=True, slots=True)
class Look:
    """What is to know of a look before its table is read."""

    state: str
    """"done", "cut" (the run ended meanwhile), "looking", "waiting", or "none"."""
    asked: int
    iterations: int
    updates: int
    warmup: int
    """Iterations before it."""
    iteration_s: float
    """How long an iteration took meanwhile."""
    untraced_s: float | None
    """How long it takes in the run's other tables; None if these do not tell."""
    calls: int
    """Function or operator calls that were traced."""
    call_cost_s: float
    """What tracing a call cost, on average, all in all."""
    reason: str = ""
    """Why there is nothing."""

    @property
    def factor(self) -> float | None:
        """By how much the look made an iteration longer."""
        return self.iteration_s / self.untraced_s if self.untraced_s else None


@dataclass(frozen=True, slots=True)
class FunctionRow:
    """A function, over all its callers."""

    name: str
    file: str
    line: int
    kind: str
    """"own" code, a "library"'s, or "native": not Python."""
    optimisable: Optimisable
    """"yes": own Python code. "calls": own code calls it often, for little each time. "no": only by doing without."""
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
    """A line of the functions' call tree."""

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
    """A torch module, by its place in the network."""

    name: str
    module: str
    """Its class."""
    depth: int
    calls: int
    grad_calls: int
    """Of them, those that a backward could follow."""
    forward_s: float
    backward_s: float
    """Both with what is below."""
    share: float
    """Of forward and backward of all networks."""
    forward_mean_s: float
    backward_mean_s: float
    """By call that a backward could follow."""


@dataclass(frozen=True, slots=True)
class LayersLook:
    """What is to know of the layers' timing."""

    every: int
    updates: int
    updates_timed: int
    synchronised: bool
    cost_s: float
    """What the timing took at least; it is in the phases, not in the layers."""


@dataclass(frozen=True, slots=True)
class Traced:
    """All looks of a run."""

    functions: tuple[FunctionRow, ...] = ()
    function_tree: tuple[CallRow, ...] = ()
    operators: tuple[OperatorRow, ...] = ()
    layers: tuple[LayerRow, ...] = ()
    functions_look: Look | None = None
    operators_look: Look | None = None
    layers_look: LayersLook | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    """What the loop did meanwhile, by counter. Recording is paused then, so no other table has it."""


NOTHING = Traced()


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the loop is when nobody looks closer."""

    env_steps: int
    updates: int
    wall_ns: int


@dataclass(frozen=True, slots=True)
class LookFiles:
    """The files of the closer looks; None for each that is not there."""

    functions: LookRecord | None = None
    operators: LookRecord | None = None
    layers: LayersRecord | None = None


def build_traced(files: LookFiles, pace: Pace) -> Traced:
    """Return what the looks of a run left, as far as they have come.

    Args:
        files: What they wrote.
        pace: The loop without the looks.
    """
    traced = NOTHING
    if files.functions is not None:
        rows, tree, look = _functions(files.functions, pace)
        traced = Traced(functions=rows, function_tree=tree, functions_look=look)
    if files.operators is not None:
        rows, look = _operators(files.operators, pace)
        traced = replace(traced, operators=rows, operators_look=look)
    if files.layers is not None:
        traced = replace(traced, layers=_layers(files.layers), layers_look=_layers_look(files.layers))
    paused = [each for each in (files.functions, files.operators) if each is not None]
    return replace(traced, counts={name: sum(getattr(each, name) for each in paused) for name in COUNTERS})


def _untraced_s(record: LookRecord, pace: Pace) -> float | None:
    """How long an iteration takes when nobody looks, if the look's iterations were like the others."""
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
        state=record.state, asked=record.asked, iterations=iterations, updates=record.updates, warmup=record.warmup,
        iteration_s=iteration_s, untraced_s=untraced_s, calls=calls,
        call_cost_s=max(added_s, 0.0) / calls if calls else 0.0, reason=record.reason,
    )  # fmt: skip


def _functions(seen: LookRecord, pace: Pace) -> tuple[tuple[FunctionRow, ...], tuple[CallRow, ...], Look]:
    rows = seen.functions
    look = _look(seen, pace, seen.events // 2)
    if not rows:
        return (), (), look
    scale = python_scale(seen, look)
    own_ns = [row.self_ns * (1.0 if row.kind == "native" else scale) for row in rows]
    whole = sum(own_ns) or 1.0
    found = [
        _function_row(row, own, row.python_ns * scale + row.native_ns, (whole, max(look.iterations, 1)))
        for row, own in zip(rows, own_ns, strict=True)
    ]
    found.sort(key=lambda row: (-row.self_s, row.name))
    return tuple(found), tuple(_call_rows(seen.tree, {row.function: row for row in rows}, scale, whole)), look


def python_scale(seen: LookRecord, look: Look) -> float:
    """Return by what the times of Python code are to be multiplied, for the interpreter is slower while it is traced.

    Native functions are not. Where an iteration's time without tracing is known, it tells; it may say no more than
    a loop without calls does, which is slowed down most.
    """
    least = 1.0 / seen.slowdown
    python = sum(row.self_ns for row in seen.functions if row.kind != "native")
    native = sum(row.self_ns for row in seen.functions if row.kind == "native")
    if look.untraced_s is None or not python:
        return (1.0 + least) / 2
    return min(max((look.untraced_s * look.iterations * 1e9 - native) / python, least), 1.0)


def _function_row(row: FunctionRecord, own_ns: float, total_ns: float, of: tuple[float, int]) -> FunctionRow:
    whole, iterations = of
    calls = row.calls
    mean_s = own_ns / calls / 1e9 if calls else 0.0
    return FunctionRow(
        name=row.name, file=row.file, line=row.line, kind=row.kind,
        optimisable=optimisable(row, mean_s, iterations), calls=calls, calls_per_iteration=calls / iterations,
        self_s=own_ns / 1e9, total_s=total_ns / 1e9, share=own_ns / whole, self_mean_s=mean_s,
        total_mean_s=total_ns / calls / 1e9 if calls else 0.0,
    )  # fmt: skip


def optimisable(row: FunctionRecord, mean_s: float, iterations: int) -> Optimisable:
    """Say what can be done about a function: see `FunctionRow.optimisable`."""
    if row.kind == "own":
        return "yes"
    often = row.calls_from_own > iterations and 2 * row.calls_from_own >= row.calls
    return "calls" if often and mean_s < SHORT_S else "no"


def _call_rows(
    tree: tuple[CallRecord, ...], functions: dict[int, FunctionRecord], scale: float, whole: float
) -> list[CallRow]:
    """Return the call tree as indented rows, largest branch first."""
    below: dict[int, list[int]] = {}
    for i, row in enumerate(tree):
        if row.function in functions:
            below.setdefault(row.parent, []).append(i)
    total = [row.python_ns * scale + row.native_ns for row in tree]
    rows: list[CallRow] = []
    waiting = [(i, 0, at == 0) for at, i in enumerate(sorted(below.get(-1, []), key=lambda i: total[i]))]
    while waiting:
        i, depth, last = waiting.pop()
        function = functions[tree[i].function]
        factor = 1.0 if function.kind == "native" else scale
        rows.append(
            CallRow(depth, function.name, function.kind, tree[i].calls, total[i] / 1e9,
                    tree[i].self_ns * factor / 1e9, total[i] / whole, last)
        )  # fmt: skip
        waiting += [
            (each, depth + 1, at == 0) for at, each in enumerate(sorted(below.get(i, []), key=lambda each: total[each]))
        ]
    return rows


def _operators(seen: LookRecord, pace: Pace) -> tuple[tuple[OperatorRow, ...], Look]:
    wall_ns = seen.wall_ns
    look = _look(seen, pace, seen.events)
    iterations = max(look.iterations, 1)
    return tuple(
        OperatorRow(
            name=row.name, calls=row.calls, calls_per_iteration=row.calls / iterations,
            self_s=row.self_ns / 1e9, total_s=row.total_ns / 1e9,
            share=row.self_ns / wall_ns if wall_ns else 0.0,
            self_mean_s=row.self_ns / row.calls / 1e9 if row.calls else 0.0,
            device_s=row.device_ns / 1e9,
        )
        for row in seen.operators
    ), look  # fmt: skip


def _layers(seen: LayersRecord) -> tuple[LayerRow, ...]:
    rows = seen.layers
    backward = [row.backward_ns for row in rows]
    for i in range(len(rows) - 1, -1, -1):
        if rows[i].parent >= 0:
            backward[rows[i].parent] += backward[i]
    whole = sum(row.forward_ns + backward[i] for i, row in enumerate(rows) if row.parent < 0) or 1
    order = _parents_first(rows)
    return tuple(
        LayerRow(
            name=rows[i].path, module=rows[i].cls, depth=rows[i].depth, calls=rows[i].calls,
            grad_calls=rows[i].grad_calls, forward_s=rows[i].forward_ns / 1e9, backward_s=backward[i] / 1e9,
            share=(rows[i].forward_ns + backward[i]) / whole,
            forward_mean_s=rows[i].forward_ns / max(rows[i].calls, 1) / 1e9,
            backward_mean_s=backward[i] / max(rows[i].grad_calls, 1) / 1e9,
        )
        for i in order
    )  # fmt: skip


def _parents_first(rows: tuple[LayerRecord, ...]) -> list[int]:
    below: dict[int, list[int]] = {}
    for i, row in enumerate(rows):
        below.setdefault(row.parent, []).append(i)
    order: list[int] = []
    waiting = below.get(-1, [])[::-1]
    while waiting:
        order.append(waiting.pop())
        waiting += below.get(order[-1], [])[::-1]
    return order


def _layers_look(seen: LayersRecord) -> LayersLook:
    return LayersLook(seen.every, seen.updates, seen.updates_timed, seen.synchronised, seen.spent_ns / 1e9)
