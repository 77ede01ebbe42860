"""Put the tables of one process together: nodes, samples, windows, memory, overhead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop.spans import Hook, Phase
from hotloop.trace.correct import Costs, Entry, corrected
from hotloop.trace.gaps import gap_phase, phase_of_stack
from hotloop.trace.histogram import percentile_ns
from hotloop.trace.model import Frame, Memory, Node, Overhead, Process, Sample, State, Stretch, Thread, Windows

Ints = NDArray[np.int64]
Table = Mapping[str, Ints]
INSIDE = 0.5
"""Part of a span's cost that falls between its two readings of the clock; the rest is its parent's. Assumed."""
COUNTER_COST = 0.35
TALLY_COST = 0.15
COUNTED_COST = 0.25
"""What adding to a counter, to a tally, and a span that is only counted cost, in spans. Assumed, from tight loops."""


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
    order = np.argsort(parts.memory["window"], kind="stable")
    memory = {name: column[order] for name, column in parts.memory.items()}
    # The loop may begin inside a window of another process: that window counts where most of it lies.
    middle = (memory["start_ns"] + memory["end_ns"]) // 2
    in_loop = (middle >= start_ns) & (middle < end_ns) & (memory["end_ns"] > start_ns)
    kept = set(memory["window"][in_loop].tolist())
    scale = _scales(parts, names)
    span_ns, tight_ns = float(parts.state.get("span_ns", 0.0)), float(parts.state.get("tight_ns", 1.0)) or 1.0
    in_place = max(span_ns / tight_ns, 1.0)
    wrappers = [in_place * float(parts.state.get(name, 0.0)) for name in ("wrap_ns", "step_wrap_ns", "quick_wrap_ns")]
    costs = Costs(
        INSIDE * span_ns,
        (1 - INSIDE) * span_ns,
        {code: wrappers[e["hook"] - 1] for code, e in names.spans.items() if e["hook"]},
        COUNTED_COST * span_ns,
        frozenset(code for code, e in names.spans.items() if e["hook"] == Hook.QUICK_STEP),
    )
    tables = {name: _only(getattr(parts, name), kept) for name in ("windows", "counters", "samples")}
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
        threads=tuple(threads), windows=_windows(parts, names, memory, in_loop, threads), memory=_memory(memory),
        overhead=_overhead(parts, {n: c[in_loop] for n, c in memory.items()}, span_ns, taken),
        counts=counts, state=state, warnings=tuple(parts.state.get("warnings", ())),
    )  # fmt: skip


def build_stretches(parts: ProcessParts, groups: list[set[int]]) -> tuple[dict[int, Stretch], ...]:
    """Say for each group of windows what was timed in the main thread, by node."""
    names = _index(parts.names)
    index = next(i for i, entry in names.threads.items() if entry["main"])
    known = names.nodes[index]
    found = []
    for group in groups:
        rows = _of_thread(_only(parts.windows, group), index)
        calls, self_ns = (_sum_by(rows["node"], rows[name]) for name in ("calls", "self_ns"))
        scale = _scales(replace(parts, windows=_only(parts.windows, group), spans=_only(parts.spans, group)), names)
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
    return names


def _only(table: Table, windows: set[int]) -> Table:
    chosen = np.isin(table["window"], list(windows))
    return {name: column[chosen] for name, column in table.items()}


def _scales(parts: ProcessParts, names: _Names) -> dict[int, float]:
    """By code, how many calls there were per call whose time was kept. Over the whole run, so that it is exact."""
    begun = Counter(_sum_by(parts.spans["code"], parts.spans["timed"] + parts.spans["counted"]))
    kept: Counter[int] = Counter()
    for index, nodes in names.nodes.items():
        rows = _of_thread(parts.windows, index)
        for node, calls in _sum_by(rows["node"], rows["calls"]).items():
            kept[nodes.get(node, {}).get("code", 0)] += calls
    return {code: begun[code] / n for code, n in kept.items() if n and begun[code]}


@dataclass(frozen=True, slots=True)
class _Run:
    """All that is needed to build a thread."""

    names: _Names
    tables: Mapping[str, Table]
    totals: list[dict[str, Any]]
    scale: dict[int, float]
    costs: Costs
    device_ns: dict[int, float]


def _build_thread(index: int, entry: dict[str, Any], run: _Run) -> tuple[Thread | None, float]:
    names, tables = run.names, run.tables
    windows = _of_thread(tables["windows"], index)
    known = names.nodes.get(index, {})
    if not len(windows["node"]) or 0 not in known:
        return None, 0.0
    sums = {name: _sum_by(windows["node"], windows[name]) for name in ("calls", "total_ns", "self_ns")}
    entries = []
    for number, node in sorted(known.items()):
        total = sums["total_ns"].get(number, 0)
        if total or number == 0 or sums["calls"].get(number, 0):
            entries.append(
                Entry(number, node["parent"], node["kind"], node.get("code", 0), sums["calls"].get(number, 0),
                      total, sums["self_ns"].get(number, 0), bool(node.get("dark")))
            )  # fmt: skip
    entries = _with_parents(entries, known)
    tree, taken = corrected(entries, run.scale, run.costs)
    samples = _samples(_of_thread(tables["samples"], index), names, {e.id: e for e in tree}, known)
    counters = _of_thread(tables["counters"], index)
    counts: dict[int, dict[str, int]] = {}
    for number, code, amount in zip(
        counters["node"].tolist(), counters["counter"].tolist(), counters["amount"].tolist(), strict=True
    ):
        row = counts.setdefault(_lit(number, known), {})
        name = names.counters.get(code, f"counter {code}")
        row[name] = row.get(name, 0) + amount
    by_node = {row["node"]: row for row in run.totals if row["thread"] == index}
    nodes = [
        replace(_node(e, known[e.id], by_node.get(e.id, {}), samples, run), counts=counts.get(e.id, {})) for e in tree
    ]
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
    spans = _only(parts.spans, kept)
    device, timed = _sum_by(spans["code"], spans["device_ns"]), _sum_by(spans["code"], spans["timed"])
    return {code: ns / timed[code] for code, ns in device.items() if ns and timed[code]}


def _node(e: Entry, known: dict[str, Any], totals: dict[str, Any], samples: list[Sample], run: _Run) -> Node:
    buckets, per_bucket = totals.get("buckets") or [], totals.get("counts") or []
    mine = [sample for sample in samples if sample.node == e.id]
    name, phase = _name_and_phase(known, mine)
    return Node(
        id=e.id, parent=e.parent, name=name, phase=phase, kind=e.kind,  # type: ignore[arg-type]
        calls=round(e.calls), total_ns=round(e.total_ns), self_ns=round(e.self_ns),
        min_ns=totals.get("min_ns", 0), max_ns=totals.get("max_ns", 0),
        p50_ns=percentile_ns(buckets, per_bucket, 0.5), p95_ns=percentile_ns(buckets, per_bucket, 0.95),
        cpu_ns=sum(sample.cpu_ns for sample in mine), cpu_memory_bytes=max(totals.get("grown_bytes", 0), 0),
        cpu_peak_bytes=totals.get("peak_bytes", 0), gpu_memory_bytes=totals.get("gpu_bytes", 0),
        device_ns=round(run.device_ns.get(e.code, 0.0) * e.calls),
    )  # fmt: skip


def _name_and_phase(known: dict[str, Any], samples: list[Sample]) -> tuple[str, Phase]:
    if known["kind"] == "root":
        return "(thread)", Phase.OTHER
    if known["kind"] == "span":
        return known["name"], Phase(known["phase"]) if known["phase"] else Phase.OTHER
    before, after = known.get("before"), known.get("after")
    seen: Counter[Phase | None] = Counter()
    for sample in samples:
        seen[phase_of_stack(sample.stack)] += sample.n
    name = f"({before['name'] if before else '·'} → {after['name'] if after else '·'})"
    return name, gap_phase(_phase(before), _phase(after), seen)


def _phase(sibling: dict[str, Any] | None) -> Phase | None:
    if sibling is None:
        return None
    return Phase(sibling["phase"]) if sibling["phase"] else Phase.OTHER


def _counts(names: _Names, counters: Table, memory: Table) -> dict[str, int]:
    sums = _sum_by(counters["counter"], counters["amount"])
    counts = {names.counters.get(code, f"counter {code}"): amount for code, amount in sums.items()}
    return counts | {
        "gc_pauses": int(memory["gc_pauses"].sum()),
        "gc_pause_ns": int(memory["gc_pause_ns"].sum()),
        "page_faults_minor": int(memory["minor_faults"].sum()),
        "page_faults_major": int(memory["major_faults"].sum()),
        "cpu_ns": int(memory["cpu_ns"].sum()),
    }


def _windows(
    parts: ProcessParts, names: _Names, memory: Table, in_loop: NDArray[np.bool_], threads: list[Thread]
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
        rows = _of_thread(parts.windows, index)
        for window, node, self_ns in zip(
            rows["window"].tolist(), rows["node"].tolist(), rows["self_ns"].tolist(), strict=True
        ):
            found = main.by_id.get(node)
            if found is not None and window in place:
                phases.setdefault(found.phase, np.zeros(size, np.int64))[place[window]] += self_ns
    return Windows(memory["start_ns"], memory["end_ns"], counts, phases, in_loop)


def _memory(memory: Table) -> Memory:
    return Memory(memory["end_ns"], memory["rss_bytes"], memory["gpu_bytes"], memory["gpu_busy_percent"])


def _overhead(parts: ProcessParts, memory: Table, span_ns: float, taken: float) -> Overhead:
    error = float(parts.state.get("span_error_ns", 0.0))
    state = parts.state
    counters = span_ns * (
        COUNTER_COST * int(state.get("counter_events", 0)) + TALLY_COST * int(state.get("tally_events", 0))
    )
    background, wall = int(memory["background_ns"].sum()), int((memory["end_ns"] - memory["start_ns"]).sum())
    timed, counted = int(parts.spans["timed"].sum()), int(parts.spans["counted"].sum())
    # While the background thread works it holds the interpreter's lock, and the training waits.
    share = (taken + counters + background) / wall if wall else 0.0
    return Overhead(
        span_ns, max(span_ns - 1.645 * error, 0.0), span_ns + 1.645 * error, timed, counted, background, share
    )


def _of_thread(table: Table, index: int) -> Table:
    chosen = table["thread"] == index
    return {name: column[chosen] for name, column in table.items()}


def _sum_by(keys: Ints, values: Ints) -> dict[int, int]:
    if not len(keys):
        return {}
    unique, inverse = np.unique(keys, return_inverse=True)
    sums = np.zeros(len(unique), np.int64)
    np.add.at(sums, inverse, values)
    return dict(zip(unique.tolist(), sums.tolist(), strict=True))
