"""Function calls of one thread, counted and timed, for `--functions`.

The tracer (`_functions.c`, or its Python reference) gives a tree of calls. Here its own cost is subtracted, hotloop's
wrappers are removed, and functions are sorted into the user's own, those of a library, and native ones.
"""

from __future__ import annotations

import functools
import os
import runpy
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from types import CodeType, FrameType, ModuleType

import hotloop
from hotloop.clock import now_ns
from hotloop.json_types import Json
from hotloop.profiling.recorder.deep import functions_reference
from hotloop.profiling.recorder.hooks.wrappers import is_wrapper
from hotloop.profiling.recorder.own_files import STARTERS, TRAINING, is_own
from hotloop.spans import hot_path

if hot_path.ACCELERATED:
    try:
        from hotloop.profiling.recorder.deep._functions import Tracer  # pyright: ignore[reportMissingImports]
    except ImportError:
        Tracer = functions_reference.Tracer
else:
    Tracer = functions_reference.Tracer

LEAST_SHARE = 0.0005
"""Branches of the call tree below this share of the time are dropped; the table still has their functions."""
MOST_FUNCTIONS = 3000
ROUNDS = 2000
_PACKAGE = os.path.join(os.path.dirname(os.path.abspath(hotloop.__file__)), "")
_RUNPY = runpy.run_module.__code__.co_filename
"""The file name in its frozen code."""
_HOUSEKEEPING = frozenset({"builtins", "_thread", "sys", "time.monotonic_ns"})
"""Native functions that hotloop's wrappers call for themselves, by module or name; others are what they wrap."""


@dataclass(frozen=True, slots=True)
class Native:
    """A native function, described when it was first seen."""

    module: str
    name: str


@dataclass(frozen=True, slots=True)
class Costs:
    """What tracing adds to the times it measures, from tight loops in this process."""

    python_call_ns: float
    native_call_ns: float
    slowdown: float
    """How much slower Python code between calls runs while traced: CPython 3.11 drops its specialised instructions."""


@dataclass(frozen=True, slots=True)
class Described:
    """The description of a function in `functions.json`."""

    name: str
    module: str
    file: str
    line: int
    kind: str
    """own, library, native or recorder."""


@dataclass(slots=True)
class Sums:
    """The calls of one function, from wherever it was called."""

    function: int
    calls: int = 0
    self_ns: float = 0.0
    python_ns: float = 0.0
    native_ns: float = 0.0
    calls_from_own: int = 0


@dataclass(slots=True)
class Branch:
    """A function below its caller."""

    parent: int
    function: int
    calls: int = 0
    self_ns: float = 0.0
    python_ns: float = 0.0
    native_ns: float = 0.0
    """Self times of it and of everything below it, of Python functions and of native ones."""


def describe(function: Callable) -> Native:
    """Name a native function: by its module, or by the class that defines it."""
    name, owner = function.__name__, getattr(function, "__self__", None)
    module = getattr(function, "__module__", None)
    if isinstance(owner, ModuleType):
        module = module or owner.__name__
    if isinstance(module, str):
        return Native(module, name if module == "builtins" else f"{module}.{name}")
    if owner is None:
        return Native("", name)
    cls = owner if isinstance(owner, type) else type(owner)
    defining = (each for each in cls.__mro__ if name in each.__dict__ and not is_wrapper(each.__dict__[name]))
    cls = next(defining, cls)
    return Native(str(getattr(cls, "__module__", "")), f"{cls.__qualname__}.{name}")


def open_calls(frame: FrameType | None) -> tuple[CodeType, ...]:
    """Return the code of a frame and of its callers, outermost first, without hotloop's own at either end."""
    codes: list[CodeType] = []
    while frame is not None:
        codes.append(frame.f_code)
        frame = frame.f_back
    outer = next((i for i, code in enumerate(codes) if code.co_filename.startswith(STARTERS)), len(codes))
    shown = [i for i, code in enumerate(codes[:outer]) if not _is_recorder(code) and code.co_filename != _RUNPY]
    return tuple(reversed(codes[shown[0] : shown[-1] + 1])) if shown else ()


def collect(tracer: functions_reference.Tracer, began: tuple[CodeType, ...], costs: Costs) -> dict[str, Json]:
    """Return what was traced, as JSON.

    Args:
        tracer: A tracer that was stopped.
        began: The calls that were open when it started.
        costs: What tracing costs.
    """
    # In a run without code of the user, hotloop's own pipelines count as the user's.
    ours = not any(is_own(code.co_filename) for code in began)
    compiled = _compiled()
    described = [_describe(each, ours, compiled) for each in tracer.known()]
    branches = _contracted(tracer.nodes(), described, costs)
    wall_ns, spent_ns, events, lost = tracer.sums()
    ranked = sorted(_by_function(branches, described), key=lambda sums: -round(sums.self_ns))[:MOST_FUNCTIONS]
    return {
        "wall_ns": wall_ns,
        "spent_ns": spent_ns,
        "events": events,
        "lost": lost,
        "recorder_ns": round(sum(each.self_ns for each in branches if each.function < 0)),
        **asdict(costs),
        "accelerated": Tracer is not functions_reference.Tracer,
        "functions": [asdict(described[sums.function]) | _rounded(sums) for sums in ranked],
        "tree": _kept(branches),
    }


def _is_recorder(code: CodeType) -> bool:
    return code.co_filename.startswith(_PACKAGE) and not code.co_filename.startswith(TRAINING)


def _compiled() -> frozenset[int]:
    """Return the ids of code that numba has compiled: its kernels look like Python functions to the tracer."""
    if "numba" not in sys.modules:
        return frozenset()
    found = set()
    for module in list(sys.modules.values()):
        for value in list(getattr(module, "__dict__", {}).values()):
            if str(getattr(type(value), "__module__", "")).startswith("numba.") and hasattr(value, "py_func"):
                found.add(id(value.py_func.__code__))
    return frozenset(found)


def _describe(known: CodeType | Native, ours: bool, compiled: frozenset[int]) -> Described:
    if isinstance(known, Native):
        return Described(known.name, known.module, "", 0, "native")
    file = known.co_filename
    if id(known) in compiled:
        kind = "native"
    elif file.startswith(TRAINING):
        kind = "own" if ours else "library"
    else:
        kind = "recorder" if file.startswith(_PACKAGE) else "own" if is_own(file) else "library"
    return Described(known.co_qualname, "", file, known.co_firstlineno, kind)


def _contracted(nodes: list[tuple[int, int, int, int]], described: list[Described], costs: Costs) -> list[Branch]:
    """Return the tree without the tracer's cost and without hotloop's own functions, whose time goes to the root.

    The root is first and has function -1; a parent comes before its children.
    """
    own_ns = _self_times(nodes, described, costs)
    root = Branch(-1, -1)
    branches, place, at = [root], {}, [0] * len(nodes)
    hidden = [False] * len(nodes)
    for i, (parent, function, calls, _) in enumerate(nodes):
        if i == 0:
            continue
        hidden[i] = _is_housekeeping(described[function], described[nodes[parent][1]] if hidden[parent] else None)
        above = at[i] = at[parent]
        if hidden[i]:
            root.self_ns += own_ns[i]
            continue
        if (above, function) not in place:
            place[above, function] = len(branches)
            branches.append(Branch(above, function))
        at[i] = place[above, function]
        branches[at[i]].calls += calls
        branches[at[i]].self_ns += own_ns[i]
    for each in reversed(branches[1:]):
        native = described[each.function].kind == "native"
        each.native_ns += each.self_ns if native else 0.0
        each.python_ns += 0.0 if native else each.self_ns
        branches[each.parent].native_ns += each.native_ns
        branches[each.parent].python_ns += each.python_ns
    return branches


def _self_times(nodes: list[tuple[int, int, int, int]], described: list[Described], costs: Costs) -> list[float]:
    """Return each node's self time. Half of what a call costs falls into it, half into its caller.

    More cannot fall into a call than it took: the rest is its caller's too.
    """
    own_ns = [float(total) for _, _, _, total in nodes]
    for i, (parent, function, calls, total) in enumerate(nodes):
        if i == 0:
            continue
        native = described[function].kind == "native"
        half = calls * (costs.native_call_ns if native else costs.python_call_ns) / 2
        own_ns[i] -= half
        own_ns[parent] -= total + half
    for i in range(len(nodes) - 1, 0, -1):
        if own_ns[i] < 0:
            own_ns[nodes[i][0]] += own_ns[i]
            own_ns[i] = 0.0
    return [max(each, 0.0) for each in own_ns]


def _is_housekeeping(what: Described, caller: Described | None) -> bool:
    """Check whether a function is hotloop's own, or a native one that hotloop calls for itself.

    Args:
        what: The function.
        caller: Its caller, if that is hotloop's own.
    """
    if what.kind != "native":
        return what.kind == "recorder"
    if what.module.startswith("hotloop"):
        return True
    if caller is None:
        return False
    # Wrappers are made inside of functions, and call what they wrap.
    return "<locals>" not in caller.name or what.module in _HOUSEKEEPING or what.name in _HOUSEKEEPING


def _by_function(branches: list[Branch], described: list[Described]) -> list[Sums]:
    """Sum by function. A call below one of the same function is inside its total already."""
    rows: dict[int, Sums] = {}
    within: list[frozenset[int]] = [frozenset()] * len(branches)
    for i, each in enumerate(branches):
        if i == 0:
            continue
        above = within[each.parent]
        within[i] = above | {each.function}
        row = rows.setdefault(each.function, Sums(each.function))
        row.calls += each.calls
        row.self_ns += each.self_ns
        if each.function not in above:
            row.python_ns += each.python_ns
            row.native_ns += each.native_ns
        caller = branches[each.parent].function
        if caller >= 0 and described[caller].kind == "own":
            row.calls_from_own += each.calls
    return list(rows.values())


def _kept(branches: list[Branch]) -> list[dict[str, Json]]:
    """Return the branches that matter, as rows of JSON, parents first."""
    whole = branches[0].python_ns + branches[0].native_ns
    rows: list[dict[str, Json]] = []
    numbers = {0: -1}
    for i, each in enumerate(branches):
        if i and each.parent in numbers and each.python_ns + each.native_ns >= LEAST_SHARE * whole:
            numbers[i] = len(rows)
            rows.append(_rounded(replace(each, parent=numbers[each.parent])))
    return rows


def _rounded(row: Sums | Branch) -> dict[str, Json]:
    return {name: round(value) for name, value in asdict(row).items()}


@functools.cache
def costs_here() -> Costs:
    """Measure what tracing adds: to a call of an empty function, to a native call, to a loop without calls."""
    plain = {fn: min(_timed(fn, None) for _ in range(5)) for fn in (_calls, _native_calls, _no_calls)}
    traced = {fn: min(_timed(fn, Tracer(describe)) for _ in range(5)) for fn in plain}
    slowdown = max(traced[_no_calls] / max(plain[_no_calls], 1.0), 1.0)
    added = {fn: max(traced[fn] - slowdown * plain[fn], 0.0) / ROUNDS for fn in plain}
    return Costs(added[_calls], added[_native_calls], min(slowdown, 4.0))


def _timed(work: Callable[[], None], tracer: functions_reference.Tracer | None) -> float:
    """Return how long the work takes in ns, without the time that the tracer itself already subtracts."""
    if tracer is None:
        begin = now_ns()
        work()
        return float(now_ns() - begin)
    other = sys.getprofile()
    tracer.start(())
    try:
        work()
    finally:
        tracer.stop()
        sys.setprofile(other)
    wall_ns, spent_ns, _, _ = tracer.sums()
    return float(wall_ns - spent_ns)


def _nothing() -> None:
    return None


def _calls() -> None:
    for _ in range(ROUNDS):
        _nothing()


def _native_calls(function: Callable[[tuple[()]], int] = len) -> None:
    for _ in range(ROUNDS):
        function(())


def _no_calls() -> None:
    value = 1
    for i in range(ROUNDS):
        value = (value * 3 + i) % 1_000_003
        if value & 1:
            value += 2
