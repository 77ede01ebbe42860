"""Put the tables of one process together: nodes, samples, windows, memory, overhead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hotloop.counters import COUNTERS, EVALUATION
from hotloop.hook_kinds import Hook
from hotloop.phases import Phase
from hotloop.profiling.trace.build.columns import Ints, Table, grouped, none_of, of_thread, of_windows, sum_by
from hotloop.profiling.trace.build.evaluation import APART, counted_apart, mark
from hotloop.profiling.trace.build.over_time import phases_by_window
from hotloop.profiling.trace.build.overhead_correction import Costs, Entry, corrected
from hotloop.profiling.trace.build.recorded import recorded_threads
from hotloop.profiling.trace.build.thinning import Scale, scaled_counters, scales
from hotloop.profiling.trace.model import Memory, Node, Overhead, Process, Sample, Seen, State, Thread, Windows
from hotloop.profiling.trace.reading.column_checks import NO_TOTAL, Total, Totals
from hotloop.profiling.trace.reading.names import Names, NodeName, Sibling, ThreadName, steps_up
from hotloop.profiling.trace.reading.open_files import Budget
from hotloop.profiling.trace.reading.run_files import ProcessParts

WRAPPERS = ("wrap_ns", "step_wrap_ns", "quick_wrap_ns", "module_wrap_ns")
"""What a process's state calls the cost of each kind of wrapper, in the order of `Hook`."""
MEMORY = ("end_ns", "rss_bytes", "gpu_bytes", "gpu_busy_percent", "reserved_bytes")
"""Columns of the memory table, in the order of `Memory`."""
MOST_IN_PLACE = 1_000.0
"""How many times more a span may cost between real work than in a tight loop; 3 to 8 were seen."""
INSIDE = 0.5
"""Part of a span's cost that falls between its two readings of the clock; the rest is its parent's. Assumed."""
COUNTER_COST = 0.35
TALLY_COST = 0.15
COUNTED_COST = 0.25
"""What adding to a counter, to a tally, and a span that is only counted cost, in spans. Assumed, from tight loops; the
tally's only where it was not measured."""


def build_process(
    parts: ProcessParts, start_ns: int, end_ns: int, state: State, budget: Budget | None = None
) -> Process:
    """Build a process's part of a trace, for a loop from `start_ns` to `end_ns`."""
    names = _with_evaluations(parts.names)
    steps = parts.names.code_of("env_steps") or 0
    counters = counted_apart(scaled_counters(parts, names), names.nodes, steps)
    parts = replace(parts, counters=counters)
    memory = parts.memory
    in_loop = _in_loop(memory, start_ns, end_ns, _counting_windows(parts.counters, names))
    kept = set(memory["window"][in_loop].tolist())
    in_place = min(max(parts.state.span_ns / (parts.state.tight_ns or 1.0), 1.0), MOST_IN_PLACE)
    costs = _costs(parts, names, in_place)
    tables = {name: of_windows(getattr(parts, name), kept) for name in ("windows", "counters", "samples")}
    scale = scales(parts.windows, parts.spans, names.nodes, kept)
    threads, taken = _threads(tables, _Run(names, parts.totals, scale, costs, _device_times(parts, kept)))
    windows, unworked = _windows(_Timeline(parts, names, memory, in_loop, costs), threads, budget or Budget())
    counts = _counts(names, tables["counters"], {n: c[in_loop] for n, c in memory.items()})
    return Process(
        pid=parts.process.pid,
        parent_pid=parts.process.parent_pid,
        name=parts.state.process,
        main=parts.process.main,
        start_ns=int(memory["start_ns"].min(initial=start_ns)),
        end_ns=int(memory["end_ns"].max(initial=start_ns)),
        threads=tuple(threads),
        windows=windows,
        memory=Memory(*(memory[name] for name in MEMORY)),
        overhead=_overhead(parts, {n: c[in_loop] for n, c in memory.items()}, in_place, taken),
        counts=counts,
        state=state,
        warnings=(*parts.state.warnings, *unworked),
        folder=parts.folder.name,
        shift_ns=parts.shift_ns,
        recorded=recorded_threads(parts, names),
    )


def _counting_windows(counters: Table, names: Names) -> Ints:
    """Return the windows in which the loop counted something, evaluations not included."""
    codes = [code for code, name in names.counters.items() if name in COUNTERS]
    return counters["window"][np.isin(counters["counter"], codes) & (counters["amount"] > 0)]


def _in_loop(memory: Table, start_ns: int, end_ns: int, counting: Ints) -> NDArray[np.bool_]:
    """Return which windows belong to the loop.

    In processes other than the one that steps, the loop may start or end inside a window. That window belongs to the
    loop if most of it does, or if something was counted in it, so that no count is lost.
    """
    touches = (memory["start_ns"] < end_ns) & (memory["end_ns"] > start_ns)
    middle = (memory["start_ns"] + memory["end_ns"]) // 2
    chosen = touches & (((middle >= start_ns) & (middle < end_ns)) | np.isin(memory["window"], counting))
    # Of a loop that is shorter than half a window, all that there is.
    return chosen if chosen.any() else touches


def _costs(parts: ProcessParts, names: Names, in_place: float) -> Costs:
    span_ns = parts.state.span_ns
    wrappers = [in_place * getattr(parts.state, name) for name in WRAPPERS]
    return Costs(
        INSIDE * span_ns,
        (1 - INSIDE) * span_ns,
        {code: wrappers[e.hook - 1] for code, e in names.spans.items() if e.hook},
        _within(parts, in_place),
        COUNTED_COST * span_ns,
        frozenset(code for code, e in names.spans.items() if e.hook == Hook.QUICK_STEP),
    )


def _within(parts: ProcessParts, in_place: float) -> dict[int, float]:
    """What the wrappers took within a timed call, in ns, by code."""
    calls = sum_by(parts.spans["code"], parts.spans["timed"])
    return {code: in_place * ns / calls[code] for code, ns in parts.state.within_ns.items() if calls.get(code)}


def _with_evaluations(names: Names) -> Names:
    """Mark the nodes inside evaluations, and name the counters of what was counted there."""
    apart = {code + APART: f"{EVALUATION}{name}" for code, name in names.counters.items()}
    nodes = {thread: mark(nodes) for thread, nodes in names.nodes.items()}
    return replace(names, nodes=nodes, counters=names.counters | apart)


@dataclass(frozen=True, slots=True)
class _Run:
    """All that is needed to build a thread."""

    names: Names
    totals: Totals
    scale: Scale
    costs: Costs
    device_ns: dict[int, float]


def _threads(tables: Mapping[str, Table], run: _Run) -> tuple[list[Thread], float]:
    """Return the threads that have time in the loop, and what recording took of the main one, in ns."""
    by_thread = {name: grouped(table, "thread") for name, table in tables.items()}
    nothing = {name: none_of(table) for name, table in tables.items()}
    threads, taken = [], 0.0
    for index, entry in run.names.threads.items():
        if index not in by_thread["windows"]:
            continue
        mine = {name: each.get(index, nothing[name]) for name, each in by_thread.items()}
        thread, cost = _build_thread(entry, mine, run)
        if thread is not None:
            threads.append(thread)
            taken += cost if thread.main else 0.0
    return threads, taken


def _build_thread(entry: ThreadName, tables: Mapping[str, Table], run: _Run) -> tuple[Thread | None, float]:
    names, windows = run.names, tables["windows"]
    known = names.nodes.get(entry.id, {})
    if 0 not in known:
        return None, 0.0
    sums = {name: sum_by(windows["node"], windows[name]) for name in ("calls", "total_ns", "self_ns")}
    entries = []
    for number, node in sorted(known.items()):
        total = sums["total_ns"].get(number, 0)
        if total or number == 0 or sums["calls"].get(number, 0):
            entries.append(
                Entry(
                    number,
                    node.parent,
                    node.kind,
                    node.code,
                    sums["calls"].get(number, 0),
                    total,
                    sums["self_ns"].get(number, 0),
                    node.dark,
                )
            )
    entries = _with_parents(entries, known)
    tree, taken = corrected(entries, run.scale.calls, run.costs, run.scale.time)
    samples = _samples(tables["samples"], names, {e.id: e for e in tree}, known)
    counts: dict[int, dict[str, int]] = {}
    for code, rows in grouped(tables["counters"], "counter").items():
        for number, amount in sum_by(rows["node"], rows["amount"]).items() if code in names.counters else ():
            row = counts.setdefault(_lit(number, known), {})
            row[names.counters[code]] = row.get(names.counters[code], 0) + amount
    nodes: list[Node] = []
    for e in tree:
        node = _node(e, known[e.id], run.totals.get((entry.id, e.id), NO_TOTAL), run)
        cpu_ns = sum(each.cpu_ns for each in samples.get(e.id, ()))
        nodes.append(replace(node, cpu_ns=cpu_ns, counts=counts.get(e.id, {})))
    seen = tuple(sample for each in samples.values() for sample in each)
    cpu = sum(sample.cpu_ns for sample in seen)
    wall = round(sum(node.self_ns for node in nodes))
    return Thread(entry.name, entry.ident, entry.main, tuple(nodes), seen, wall, cpu), taken


def _with_parents(entries: list[Entry], known: Mapping[int, NodeName]) -> list[Entry]:
    """Add parents that themselves had no time in the loop, so that the tree hangs together."""
    have = {e.id for e in entries}
    for e in list(entries):
        parent = e.parent
        while parent >= 0 and parent not in have:
            node = known[parent]
            entries.append(Entry(parent, node.parent, node.kind, node.code, 0, 0, 0))
            have.add(parent)
            parent = node.parent
    return sorted(entries, key=lambda e: e.id)


def _lit(number: int, known: Mapping[int, NodeName]) -> int:
    """What happened while some spans were switched off is put down to the container."""
    node = known.get(number)
    return node.parent if node is not None and node.dark else number


SAMPLED = ("n", "wall_ns", "cpu_ns", "gc_ns", "wait_ns", "io_ns", "starved_ns")


def _samples(
    table: Table, names: Names, tree: dict[int, Entry], known: Mapping[int, NodeName]
) -> dict[int, list[Sample]]:
    """Return the samples of each node."""
    merged: dict[tuple[int, int], list[int]] = {}
    columns = (table[name].tolist() for name in ("node", "stack", *SAMPLED))
    for node, stack, *values in zip(*columns, strict=True):
        row = merged.setdefault((node, stack), [0] * len(SAMPLED))
        for i, value in enumerate(values):
            row[i] += value
    wall_of = Counter[int]()
    for (node, _), row in merged.items():
        wall_of[node] += row[1]
    found: dict[int, list[Sample]] = {}
    for (number, stack), (n, wall, *parts) in merged.items():
        node = _lit(number, known)
        if node not in tree:
            continue
        # A node's time is known exactly; its samples say how it is divided among lines. What was seen while some spans
        # were switched off may have been inside of them, so it has no part in the time of the node.
        exact = round(tree[node].self_ns * wall / wall_of[node]) if wall and node == number else 0
        busy = min(parts[0] / wall, 1.0) if wall else 0.0
        frames = names.stacks.get(stack, ())
        found.setdefault(node, []).append(Sample(node, frames, n, exact, round(exact * busy), Seen(wall, *parts)))
    return found


def _device_times(parts: ProcessParts, kept: set[int]) -> dict[int, float]:
    """Return the device time per call, in ns, for each code (number of a span)."""
    spans = of_windows(parts.spans, kept)
    device, timed = sum_by(spans["code"], spans["device_ns"]), sum_by(spans["code"], spans["timed"])
    return {code: ns / timed[code] for code, ns in device.items() if ns and timed[code]}


def _node(e: Entry, known: NodeName, total: Total, run: _Run) -> Node:
    return Node(
        id=e.id,
        parent=e.parent,
        name=known.label,
        kind=e.kind,  # type: ignore[arg-type]
        phase=_phase_of(e, known),
        calls=round(e.calls),
        total_ns=round(e.total_ns),
        self_ns=round(e.self_ns),
        min_ns=total.min_ns,
        max_ns=total.max_ns,
        p50_ns=total.p50_ns,
        p95_ns=total.p95_ns,
        cpu_ns=0,
        cpu_memory_bytes=max(total.grown_bytes, 0),
        cpu_peak_bytes=total.peak_bytes,
        gpu_memory_bytes=total.gpu_bytes,
        device_ns=round(run.device_ns.get(e.code, 0.0) * e.calls),
        between=(_phase(known.before), _phase(known.after)),
    )


def _phase_of(e: Entry, known: NodeName) -> Phase:
    if e.kind == "span":
        return known.phase or Phase.OTHER
    return Phase.EVALUATE if known.evaluating else Phase.OWN


def _phase(sibling: Sibling | None) -> Phase | None:
    return None if sibling is None else sibling.phase or Phase.OTHER


def _counts(names: Names, counters: Table, memory: Table) -> dict[str, int]:
    sums = sum_by(counters["counter"], counters["amount"])
    counts = {names.counters[code]: amount for code, amount in sums.items() if code in names.counters}
    return counts | {
        "gc_pauses": int(memory["gc_pauses"].sum()),
        "gc_pause_ns": int(memory["gc_pause_ns"].sum()),
        "page_faults_minor": int(memory["minor_faults"].sum()),
        "page_faults_major": int(memory["major_faults"].sum()),
        "cpu_ns": int(memory["cpu_ns"].sum()),
        "starved_ns": int(memory["starved_ns"].sum()),
    }


@dataclass(frozen=True)
class _Timeline:
    """All that is needed to say what happened when."""

    parts: ProcessParts
    names: Names
    memory: Table
    in_loop: NDArray[np.bool_]
    costs: Costs


def _windows(of: _Timeline, threads: list[Thread], budget: Budget) -> tuple[Windows, list[str]]:
    """Return what happened in each window, and what is left out because it would take too long."""
    parts, names, memory = of.parts, of.names, of.memory
    place = {window: i for i, window in enumerate(memory["window"].tolist())}
    size = len(place)
    counts: dict[str, Ints] = {}
    for code, rows in grouped(of_windows(parts.counters, place.keys()), "counter").items():
        if code in names.counters:
            amounts = counts.setdefault(names.counters[code], np.zeros(size, np.int64))
            np.add.at(amounts, np.searchsorted(memory["window"], rows["window"]), rows["amount"])
    phases: dict[Phase, Ints] = {}
    left_out: list[str] = []
    main, index = next((thread for thread in threads if thread.main), None), names.main_thread
    if main is not None and index is not None:
        known = names.nodes[index]
        if budget.take_work(size * steps_up(known)):
            rows = of_thread(parts.windows, index)
            phases = phases_by_window(rows, parts.spans, known, of.costs, main, place)
        else:
            left_out = ["phases over time are left out: the run has too many windows and call paths"]
    return Windows(memory["start_ns"], memory["end_ns"], counts, phases, of.in_loop), left_out


def _overhead(parts: ProcessParts, memory: Table, in_place: float, taken: float) -> Overhead:
    state = parts.state
    span_ns, error = state.span_ns, state.span_error_ns
    tally_ns = TALLY_COST * span_ns if state.tally_wrap_ns is None else in_place * state.tally_wrap_ns
    counters = COUNTER_COST * span_ns * state.counter_events + tally_ns * state.tally_events
    background, wall = int(memory["background_ns"].sum()), int((memory["end_ns"] - memory["start_ns"]).sum())
    whole = int((parts.memory["end_ns"] - parts.memory["start_ns"]).sum())
    # The sampler takes about as much from the thread whose memory it reads as it uses itself.
    sampling = round(state.sampler_cpu_ns * wall / whole) if whole else 0
    held_up = (
        background
        if not state.own_process
        else min(background, _without_core_ns(memory, background, state.cores * wall))
    )
    timed, counted = int(parts.spans["timed"].sum()), int(parts.spans["counted"].sum())
    share = (taken + counters + sampling + held_up) / wall if wall else 0.0
    return Overhead(
        span_ns,
        max(span_ns - 1.645 * error, 0.0),
        span_ns + 1.645 * error,
        timed,
        counted,
        background + sampling,
        share,
        taken / wall if wall else 0.0,
    )


def _without_core_ns(memory: Table, background: int, available: int) -> int:
    """Return for how long a recorder in a process of its own can have kept the training from a core.

    It is at most the time in which the main thread had none, and what all of them wanted beyond the cores there are.
    """
    wanted = int(memory["cpu_ns"].sum()) + background - available
    return max(int(memory["starved_ns"].sum()), wanted, 0)
