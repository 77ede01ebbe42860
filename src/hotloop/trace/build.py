"""Put the tables of one process together: nodes, samples, windows, memory, overhead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop.spans import Hook, Phase
from hotloop.trace.columns import Ints, Table, of_thread, of_windows, sum_by
from hotloop.trace.correct import Costs, Entry, corrected
from hotloop.trace.evaluating import APART, PREFIX, counted_apart, mark
from hotloop.trace.gaps import gap_phases, phase_of_stack
from hotloop.trace.histogram import percentile_ns
from hotloop.trace.model import PART, Frame, Memory, Node, Overhead, Process, Sample, State, Stretch, Thread, Windows
from hotloop.trace.over_time import phases_by_window
from hotloop.trace.thinning import Scale, call_scales, scales

WRAPPERS = ("wrap_ns", "step_wrap_ns", "quick_wrap_ns", "module_wrap_ns")
"""What a process's state calls the cost of each kind of wrapper, in the order of `Hook`."""
INSIDE = 0.5
"""Part of a span's cost that falls between its two readings of the clock; the rest is its parent's. Assumed."""
COUNTER_COST = 0.35
TALLY_COST = 0.15
COUNTED_COST = 0.25
"""What adding to a counter, to a tally, and a span that is only counted cost, in spans. Assumed, from tight loops; the
tally's only where it was not measured."""


@dataclass(frozen=True, slots=True)
class ProcessParts:
    """A process's files, read."""

    process: dict[str, Any]
    state: dict[str, Any]
    names: list[dict[str, Any]]
    totals: list[dict[str, Any]]
    windows: Table
    spans: Table
    counters: Table
    samples: Table
    memory: Table


@dataclass(frozen=True, slots=True)
class _Names:
    spans: dict[int, dict[str, Any]]
    counters: dict[int, str]
    threads: dict[int, dict[str, Any]]
    nodes: dict[int, dict[int, dict[str, Any]]]
    stacks: dict[int, tuple[Frame, ...]]


def build_process(parts: ProcessParts, start_ns: int, end_ns: int, state: State) -> Process:
    """Build a process's part of a trace, over the loop's time."""
    names = _index(parts.names)
    steps = next((code for code, name in names.counters.items() if name == "env_steps"), 0)
    parts = replace(parts, counters=counted_apart(parts.counters, names.nodes, steps))
    order = np.argsort(parts.memory["window"], kind="stable")
    memory = {name: column[order] for name, column in parts.memory.items()}
    # The loop may begin inside a window of another process: that window counts where most of it lies.
    middle = (memory["start_ns"] + memory["end_ns"]) // 2
    in_loop = (middle >= start_ns) & (middle < end_ns) & (memory["end_ns"] > start_ns)
    if not in_loop.any():
        # Of a loop that is shorter than half a window, all that there is.
        in_loop = (memory["start_ns"] < end_ns) & (memory["end_ns"] > start_ns)
    kept = set(memory["window"][in_loop].tolist())
    scale = scales(parts.windows, parts.spans, names.nodes, kept)
    span_ns, tight_ns = float(parts.state.get("span_ns", 0.0)), float(parts.state.get("tight_ns", 1.0)) or 1.0
    in_place = max(span_ns / tight_ns, 1.0)
    wrappers = [in_place * float(parts.state.get(name, 0.0)) for name in WRAPPERS]
    costs = Costs(
        INSIDE * span_ns,
        (1 - INSIDE) * span_ns,
        {code: wrappers[e["hook"] - 1] for code, e in names.spans.items() if e["hook"]},
        _within(parts, in_place),
        COUNTED_COST * span_ns,
        frozenset(code for code, e in names.spans.items() if e["hook"] == Hook.QUICK_STEP),
    )
    tables = {name: of_windows(getattr(parts, name), kept) for name in ("windows", "counters", "samples")}
    run = _Run(names, tables, parts.totals, scale, costs, _device_times(parts, kept))
    threads, taken = [], 0.0
    for index, entry in names.threads.items():
        thread, cost = _build_thread(index, entry, run)
        if thread is not None:
            threads.append(thread)
            taken += cost if thread.main else 0.0
    counts = _counts(names, tables["counters"], {n: c[in_loop] for n, c in memory.items()})
    return Process(
        pid=parts.process["pid"], parent_pid=parts.process["parent_pid"],
        name=parts.state.get("process", "MainProcess"), main=parts.process["main"],
        start_ns=int(memory["start_ns"].min(initial=start_ns)), end_ns=int(memory["end_ns"].max(initial=start_ns)),
        threads=tuple(threads), windows=_windows(parts, names, memory, in_loop, threads, costs), memory=_memory(memory),
        overhead=_overhead(parts, {n: c[in_loop] for n, c in memory.items()}, in_place, taken),
        counts=counts, state=state, warnings=tuple(parts.state.get("warnings", ())),
    )  # fmt: skip


def _within(parts: ProcessParts, in_place: float) -> dict[int, float]:
    """What the wrappers took within a call, in ns, by code: the mean over all calls, timed or not."""
    calls = sum_by(parts.spans["code"], parts.spans["timed"] + parts.spans["counted"])
    taken = {int(code): float(ns) for code, ns in parts.state.get("within_ns", {}).items()}
    return {code: in_place * ns / calls[code] for code, ns in taken.items() if calls.get(code)}


def build_stretches(parts: ProcessParts, groups: list[set[int]]) -> tuple[dict[int, Stretch], ...]:
    """Say for each group of windows what was timed in the main thread, by node."""
    names = _index(parts.names)
    index = next(i for i, entry in names.threads.items() if entry["main"])
    known = names.nodes[index]
    found = []
    for group in groups:
        rows = of_thread(of_windows(parts.windows, group), index)
        calls, self_ns = (sum_by(rows["node"], rows[name]) for name in ("calls", "self_ns"))
        scale = call_scales(of_windows(parts.windows, group), of_windows(parts.spans, group), names.nodes)
        stretch: dict[int, Stretch] = {}
        for node, ns in self_ns.items():
            entry = known.get(node, {"kind": "root"})
            if entry["kind"] != "root" and not entry.get("dark"):
                counted = node if entry["kind"] == "span" else _neighbour(node, known)
                timed = calls.get(counted, 0)
                stretch[node] = Stretch(timed, ns, timed * scale.get(known.get(counted, {}).get("code", 0), 1.0))
        found.append(stretch)
    return tuple(found)


def _neighbour(gap: int, known: dict[int, dict[str, Any]]) -> int:
    """Return the span before a gap, or after it, which is called as often as the gap occurs; -1 if there is none."""
    entry = known[gap]
    side = entry.get("before") or entry.get("after") or {"name": ""}
    siblings = (n for n, e in known.items() if e["kind"] == "span" and e["parent"] == entry["parent"])
    return next((n for n in siblings if known[n]["name"] == side["name"]), -1)


def _index(entries: list[dict[str, Any]]) -> _Names:
    names = _Names({}, {}, {}, {}, {})
    frames: dict[int, Frame] = {}
    for e in entries:
        match e["is"]:
            case "span":
                names.spans[e["code"]] = e
            case "counter":
                names.counters[e["code"]] = e["name"]
            case "thread":
                names.threads[e["id"]] = e
            case "node":
                names.nodes.setdefault(e["thread"], {})[e["id"]] = e
            case "frame":
                frames[e["id"]] = Frame(e["function"], e["file"], e["line"], e["text"], e["own"])
            case "stack":
                names.stacks[e["id"]] = tuple(frames[each] for each in e["frames"] if each in frames)
    for nodes in names.nodes.values():
        mark(nodes)
    names.counters.update({code + APART: f"{PREFIX}{name}" for code, name in list(names.counters.items())})
    return names


@dataclass(frozen=True, slots=True)
class _Run:
    """All that is needed to build a thread."""

    names: _Names
    tables: Mapping[str, Table]
    totals: list[dict[str, Any]]
    scale: Scale
    costs: Costs
    device_ns: dict[int, float]


def _build_thread(index: int, entry: dict[str, Any], run: _Run) -> tuple[Thread | None, float]:
    names, tables = run.names, run.tables
    windows = of_thread(tables["windows"], index)
    known = names.nodes.get(index, {})
    if not len(windows["node"]) or 0 not in known:
        return None, 0.0
    sums = {name: sum_by(windows["node"], windows[name]) for name in ("calls", "total_ns", "self_ns")}
    entries = []
    for number, node in sorted(known.items()):
        total = sums["total_ns"].get(number, 0)
        if total or number == 0 or sums["calls"].get(number, 0):
            entries.append(
                Entry(number, node["parent"], node["kind"], node.get("code", 0), sums["calls"].get(number, 0),
                      total, sums["self_ns"].get(number, 0), bool(node.get("dark")))
            )  # fmt: skip
    entries = _with_parents(entries, known)
    tree, taken = corrected(entries, run.scale.calls, run.costs, run.scale.time)
    samples = _samples(of_thread(tables["samples"], index), names, {e.id: e for e in tree}, known)
    counters = of_thread(tables["counters"], index)
    counts: dict[int, dict[str, int]] = {}
    for number, code, amount in zip(
        counters["node"].tolist(), counters["counter"].tolist(), counters["amount"].tolist(), strict=True
    ):
        row = counts.setdefault(_lit(number, known), {})
        name = names.counters.get(code, f"counter {code}")
        row[name] = row.get(name, 0) + amount
    by_node = {row["node"]: row for row in run.totals if row["thread"] == index}
    nodes = []
    for e in tree:
        node = _node(e, known[e.id], by_node.get(e.id, {}), run)
        mine = [sample for sample in samples if sample.node == e.id]
        nodes.append(replace(node, cpu_ns=sum(each.cpu_ns for each in mine), counts=counts.get(e.id, {})))
        if node.kind == "gap":
            nodes[-1:], moved = _split_gap(nodes[-1], known[e.id], mine)
            samples = [each for each in samples if each.node != e.id] + moved
    cpu = sum(sample.cpu_ns for sample in samples)
    wall = round(sum(node.self_ns for node in nodes))
    return Thread(entry["name"], entry["ident"], entry["main"], tuple(nodes), tuple(samples), wall, cpu), taken


def _with_parents(entries: list[Entry], known: dict[int, dict[str, Any]]) -> list[Entry]:
    """Add parents that themselves had no time in the loop, so that the tree hangs together."""
    have = {e.id for e in entries}
    for e in list(entries):
        parent = e.parent
        while parent >= 0 and parent not in have:
            node = known[parent]
            entries.append(Entry(parent, node["parent"], node["kind"], node.get("code", 0), 0, 0, 0))
            have.add(parent)
            parent = node["parent"]
    return sorted(entries, key=lambda e: e.id)


def _lit(number: int, known: dict[int, dict[str, Any]]) -> int:
    """What happened while some spans were switched off is put down to the container."""
    node = known.get(number)
    return node["parent"] if node and node.get("dark") else number


def _samples(table: Table, names: _Names, tree: dict[int, Entry], known: dict[int, dict[str, Any]]) -> list[Sample]:
    merged: dict[tuple[int, int], list[int]] = {}
    columns = (table[name].tolist() for name in ("node", "stack", "n", "wall_ns", "cpu_ns"))
    for node, stack, n, wall, cpu in zip(*columns, strict=True):
        row = merged.setdefault((node, stack), [0, 0, 0])
        row[0], row[1], row[2] = row[0] + n, row[1] + wall, row[2] + cpu
    lit = {key: row for key, row in merged.items() if not known.get(key[0], {}).get("dark")}
    wall_of = Counter[int]()
    for (node, _), row in lit.items():
        wall_of[node] += row[1]
    found = []
    for (node, stack), (n, wall, cpu) in lit.items():
        if node not in tree:
            continue
        # A node's time is known exactly; its samples only say how it is divided among lines.
        share = wall / wall_of[node] if wall_of[node] else 0.0
        exact = round(tree[node].self_ns * share)
        busy = cpu / wall if wall else 0.0
        found.append(Sample(node, names.stacks.get(stack, ()), n, exact, round(exact * min(busy, 1.0))))
    return found


def _device_times(parts: ProcessParts, kept: set[int]) -> dict[int, float]:
    """Device time a call, in ns, by code."""
    spans = of_windows(parts.spans, kept)
    device, timed = sum_by(spans["code"], spans["device_ns"]), sum_by(spans["code"], spans["timed"])
    return {code: ns / timed[code] for code, ns in device.items() if ns and timed[code]}


def _node(e: Entry, known: dict[str, Any], totals: dict[str, Any], run: _Run) -> Node:
    buckets, per_bucket = totals.get("buckets") or [], totals.get("counts") or []
    return Node(
        id=e.id, parent=e.parent, name=_name(known), kind=e.kind,  # type: ignore[arg-type]
        phase=(_phase(known) if e.kind == "span" else None) or Phase.OTHER,
        calls=round(e.calls), total_ns=round(e.total_ns), self_ns=round(e.self_ns),
        min_ns=totals.get("min_ns", 0), max_ns=totals.get("max_ns", 0),
        p50_ns=percentile_ns(buckets, per_bucket, 0.5), p95_ns=percentile_ns(buckets, per_bucket, 0.95),
        cpu_ns=0, cpu_memory_bytes=max(totals.get("grown_bytes", 0), 0),
        cpu_peak_bytes=totals.get("peak_bytes", 0), gpu_memory_bytes=totals.get("gpu_bytes", 0),
        device_ns=round(run.device_ns.get(e.code, 0.0) * e.calls),
    )  # fmt: skip


def _name(known: dict[str, Any]) -> str:
    if known["kind"] != "gap":
        return "(thread)" if known["kind"] == "root" else known["name"]
    before, after = known.get("before"), known.get("after")
    return f"({before['name'] if before else '·'} → {after['name'] if after else '·'})"


def _split_gap(gap: Node, known: dict[str, Any], samples: list[Sample]) -> tuple[list[Node], list[Sample]]:
    """Give a gap its phase, or make parts of it by the phases of its lines; return them, and the samples of each.

    The largest part keeps the gap's id, and what is not known by line.
    """
    if known.get("evaluating"):
        return [replace(gap, phase=Phase.EVALUATE)], samples
    told = [phase_of_stack(sample.stack) for sample in samples]
    seen: Counter[Phase | None] = Counter()
    for phase, sample in zip(told, samples, strict=True):
        seen[phase] += sample.n
    phases = gap_phases(_phase(known.get("before")), _phase(known.get("after")), seen)
    wall, cpu = Counter[Phase](), Counter[Phase]()
    for phase, sample in zip(told, samples, strict=True):
        wall[phases[phase]] += sample.wall_ns
        cpu[phases[phase]] += sample.cpu_ns
    first = wall.most_common(1)[0][0] if wall else phases[None]
    others = [phase for phase, ns in wall.items() if ns and phase is not first]
    number = {first: gap.id} | {phase: gap.id + i * PART for i, phase in enumerate(others, 1)}
    parts = [
        replace(gap, id=number[phase], phase=phase, self_ns=wall[phase], total_ns=wall[phase], cpu_ns=cpu[phase],
                cpu_memory_bytes=0, counts={})
        for phase in others
    ]  # fmt: skip
    rest = gap.self_ns - sum(part.self_ns for part in parts)
    whole = replace(gap, phase=first, self_ns=rest, total_ns=rest, cpu_ns=cpu[first] if wall else gap.cpu_ns)
    # Lines of a phase that no time is known of stay with the gap.
    moved = [replace(sample, node=number.get(phases[p], gap.id)) for p, sample in zip(told, samples, strict=True)]
    return [whole, *parts], moved


def _phase(sibling: dict[str, Any] | None) -> Phase | None:
    if sibling is None:
        return None
    return Phase(sibling["phase"]) if sibling["phase"] else Phase.OTHER


def _counts(names: _Names, counters: Table, memory: Table) -> dict[str, int]:
    sums = sum_by(counters["counter"], counters["amount"])
    counts = {names.counters.get(code, f"counter {code}"): amount for code, amount in sums.items()}
    return counts | {
        "gc_pauses": int(memory["gc_pauses"].sum()),
        "gc_pause_ns": int(memory["gc_pause_ns"].sum()),
        "page_faults_minor": int(memory["minor_faults"].sum()),
        "page_faults_major": int(memory["major_faults"].sum()),
        "cpu_ns": int(memory["cpu_ns"].sum()),
        "starved_ns": int(memory["starved_ns"].sum()),
    }


def _windows(
    parts: ProcessParts, names: _Names, memory: Table, in_loop: NDArray[np.bool_], threads: list[Thread], costs: Costs
) -> Windows:
    place = {window: i for i, window in enumerate(memory["window"].tolist())}
    size = len(place)
    counts: dict[str, Ints] = {}
    table = parts.counters
    for window, code, amount in zip(
        table["window"].tolist(), table["counter"].tolist(), table["amount"].tolist(), strict=True
    ):
        name = names.counters.get(code, f"counter {code}")
        counts.setdefault(name, np.zeros(size, np.int64))[place.get(window, 0)] += amount
    phases: dict[Phase, Ints] = {}
    main = next((thread for thread in threads if thread.main), None)
    if main is not None:
        index = next(i for i, entry in names.threads.items() if entry["main"])
        rows = of_thread(parts.windows, index)
        phases = phases_by_window(rows, parts.spans, names.nodes[index], costs, main, place)
    return Windows(memory["start_ns"], memory["end_ns"], counts, phases, in_loop)


def _memory(memory: Table) -> Memory:
    names = ("end_ns", "rss_bytes", "gpu_bytes", "gpu_busy_percent", "reserved_bytes")
    return Memory(*(memory[name] for name in names))


def _overhead(parts: ProcessParts, memory: Table, in_place: float, taken: float) -> Overhead:
    state = parts.state
    span_ns, error = float(state.get("span_ns", 0.0)), float(state.get("span_error_ns", 0.0))
    tally_ns = in_place * float(state["tally_wrap_ns"]) if "tally_wrap_ns" in state else TALLY_COST * span_ns
    counters = COUNTER_COST * span_ns * int(state.get("counter_events", 0))
    counters += tally_ns * int(state.get("tally_events", 0))
    background, wall = int(memory["background_ns"].sum()), int((memory["end_ns"] - memory["start_ns"]).sum())
    timed, counted = int(parts.spans["timed"].sum()), int(parts.spans["counted"].sum())
    # While the background thread works it holds the interpreter's lock, and the training waits.
    share = (taken + counters + background) / wall if wall else 0.0
    return Overhead(
        span_ns, max(span_ns - 1.645 * error, 0.0), span_ns + 1.645 * error, timed, counted, background, share,
        taken / wall if wall else 0.0,
    )  # fmt: skip
