"""Synthetic runs for tests: builds a `Trace` from a call tree, stacks and counters written by hand.

    sample = place("ReplayBuffer.sample", Phase.SAMPLE, self_s=6, calls=100)
    trace = make_trace(
        [place("DQN.train", self_s=0.5, children=[sample])],
        samples=[seen("DQN.train/ReplayBuffer.sample", [frame("sample", "dqn.py", 12, "np.array(s)")], 6.0)],
        counts={"env_steps": 1000, "updates": 100},
    )

Totals are computed from self times, so the self times of a thread always sum to its wall time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hotloop.phases import Phase
from hotloop.profiling.diagnosis import Finding, explain
from hotloop.profiling.trace.model import (
    FORMAT_VERSION,
    Frame,
    Kind,
    Memory,
    Node,
    Overhead,
    Process,
    Sample,
    State,
    Thread,
    Trace,
    Windows,
)

NS = 1_000_000_000
SAMPLER_HZ = 100
START_NS = 5 * NS
MACHINE: dict[str, Any] = {
    "cores": 4,
    "memory_bytes": 16 << 30,
    "peak_flops": 2e11,
    "peak_flops_1": 6e10,
    "copy_bytes_per_s": 8e9,
    "gpu": None,
    "platform": "Linux-x86_64",
    "python": "3.11.9",
}


@dataclass(frozen=True)
class Place:
    """Describes a node: its measurements and its children. Created by `place`."""

    name: str
    phase: Phase
    self_s: float
    calls: int
    children: tuple[Place, ...]
    counts: Mapping[str, int]
    kind: Kind
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def total_s(self) -> float:
        return self.self_s + sum(child.total_s for child in self.children)


@dataclass(frozen=True)
class Seen:
    """Describes the samples of a stack. Created by `seen`."""

    path: tuple[str, ...]
    stack: tuple[Frame, ...]
    seconds: float
    cpu: float


def place(
    name: str,
    phase: Phase = Phase.OTHER,
    self_s: float = 0.0,
    calls: int = 1,
    children: Sequence[Place] = (),
    counts: Mapping[str, int] | None = None,
    kind: Kind = "span",
    **fields: Any,
) -> Place:
    """Describe a node. `fields` replace any field of `Node`, e.g. `cpu_memory_bytes=5 << 20`."""
    return Place(name, phase, self_s, calls, tuple(children), dict(counts or {}), kind, fields)


def gap(name: str, phase: Phase, self_s: float, **fields: Any) -> Place:
    """Describe time between two spans, e.g. `gap("(QNetwork → CartPoleEnv.step)", Phase.ENV, 1.5)`."""
    return place(name, phase, self_s, kind="gap", **fields)


def frame(function: str, file: str = "train.py", line: int = 1, text: str = "", own: bool = True) -> Frame:
    return Frame(function=function, file=file, line=line, text=text, own=own)


def seen(path: str, stack: Sequence[Frame], seconds: float, cpu: float = 1.0) -> Seen:
    """Describe a sampled stack, innermost first. `path` joins names by "/", "" is the root; `cpu` is 0..1."""
    return Seen(tuple(part for part in path.split("/") if part), tuple(stack), seconds, cpu)


def make_thread(
    tree: Sequence[Place],
    samples: Sequence[Seen] = (),
    unattributed_s: float = 0.0,
    name: str = "MainThread",
    main: bool = True,
    cpu_s: float | None = None,
) -> Thread:
    """Build a thread: the places below a root whose self time is `unattributed_s`."""
    nodes = _nodes(place(name, Phase.OTHER, unattributed_s, children=tree, kind="root"))
    thread = Thread(
        name=name,
        ident=1 if main else abs(hash(name)) % 1_000_000,
        main=main,
        nodes=tuple(nodes),
        samples=(),
        wall_ns=nodes[0].total_ns,
        cpu_ns=nodes[0].total_ns if cpu_s is None else _ns(cpu_s),
    )
    return replace(thread, samples=tuple(_sample(thread, each) for each in samples))


def make_process(
    threads: Sequence[Thread],
    counts: Mapping[str, int] | None = None,
    windows: Mapping[str, Sequence[int]] | None = None,
    memory_bytes: Sequence[int] = (300 << 20, 320 << 20),
    reserved_bytes: Sequence[int] | None = None,
    pid: int = 100,
    main: bool = True,
    **fields: Any,
) -> Process:
    """Build a process. `windows`: a counter's amount in each 1 s window; else counts are spread evenly."""
    wall_ns = max(thread.wall_ns for thread in threads)
    process = Process(
        pid=pid,
        parent_pid=1 if main else 100,
        name="main" if main else f"worker-{pid}",
        main=main,
        start_ns=START_NS,
        end_ns=START_NS + wall_ns,
        threads=tuple(threads),
        windows=_windows(threads[0], dict(counts or {}), windows, wall_ns),
        memory=_memory(memory_bytes, reserved_bytes, wall_ns),
        overhead=Overhead(900.0, 800.0, 1000.0, 10_000, 0, 10_000_000, 0.004),
        counts=dict(counts or {}),
        state="finished",
        warnings=(),
    )
    return replace(process, **fields)


def make_trace(
    tree: Sequence[Place] = (),
    samples: Sequence[Seen] = (),
    counts: Mapping[str, int] | None = None,
    machine: Mapping[str, Any] | None = None,
    windows: Mapping[str, Sequence[int]] | None = None,
    unattributed_s: float = 0.0,
    threads: Sequence[Thread] = (),
    others: Sequence[Process] = (),
    torch_threads: int | None = 1,
    state: State = "finished",
    warnings: Sequence[str] = (),
    process: Mapping[str, Any] | None = None,
) -> Trace:
    """Build a run.

    Args:
        tree: Nodes below the root of the main thread.
        samples: Stack samples of the main thread.
        counts: Counters of the main process over the loop.
        machine: Changes to `MACHINE`.
        windows: Counter to its amount in each 1 s window; if not given, counts are spread evenly.
        unattributed_s: Self time of the root.
        threads: Further threads of the main process, by `make_thread(..., main=False)`.
        others: Further processes, by `make_process(..., main=False)`.
        torch_threads: Torch's thread count, None for a run without torch.
        state: State of the run and its main process.
        warnings: Warnings of the run.
        process: Changes to the main process, e.g. `{"memory_bytes": [...], "overhead": ...}`.
    """
    thread = make_thread(tree, samples, unattributed_s)
    main = make_process([thread, *threads], counts, windows, **({"state": state} | dict(process or {})))
    return Trace(
        path="runs/synthetic",
        name="synthetic",
        manifest=_manifest(machine, torch_threads, state, thread.wall_ns),
        processes=(main, *others),
        state=state,
        warnings=tuple(warnings),
        loop_start_ns=START_NS,
        loop_end_ns=START_NS + thread.wall_ns,
        startup_ns=2 * NS,
    )


def _ns(seconds: float) -> int:
    return round(seconds * NS)


def _nodes(root: Place) -> list[Node]:
    found: list[Node] = []
    waiting: list[tuple[Place, int]] = [(root, -1)]
    for each, parent in waiting:
        number = len(found)
        found.append(_node(each, number, parent))
        waiting.extend((child, number) for child in each.children)
    return found


def _total_ns(each: Place) -> int:
    return _ns(each.self_s) + sum(_total_ns(child) for child in each.children)


def _node(each: Place, number: int, parent: int) -> Node:
    total_ns = _total_ns(each)
    mean_ns = total_ns // each.calls if each.calls else 0
    made = Node(
        id=number,
        parent=parent,
        name=each.name,
        phase=each.phase,
        kind=each.kind,
        calls=each.calls,
        total_ns=total_ns,
        self_ns=_ns(each.self_s),
        min_ns=mean_ns,
        max_ns=mean_ns,
        p50_ns=mean_ns,
        p95_ns=mean_ns,
        cpu_ns=_ns(each.self_s),
        cpu_memory_bytes=0,
        cpu_peak_bytes=0,
        gpu_memory_bytes=0,
        device_ns=0,
        counts=each.counts,
    )
    return replace(made, **each.fields)


def _sample(thread: Thread, each: Seen) -> Sample:
    found = [node.id for node in thread.nodes if thread.path(node) == each.path]
    if not found:
        raise ValueError(f"no node has the path {each.path}: paths are {[thread.path(n) for n in thread.nodes]}")
    return Sample(
        node=found[0],
        stack=each.stack,
        n=max(1, round(each.seconds * SAMPLER_HZ)),
        wall_ns=_ns(each.seconds),
        cpu_ns=_ns(each.seconds * each.cpu),
    )


def _windows(
    thread: Thread, counts: Mapping[str, int], windows: Mapping[str, Sequence[int]] | None, wall_ns: int
) -> Windows:
    n = len(next(iter(windows.values()))) if windows else max(1, round(wall_ns / NS))
    edges = START_NS + np.linspace(0, n * NS if windows else wall_ns, n + 1).astype(np.int64)
    amounts = {name: _spread(total, n) for name, total in counts.items()}
    amounts |= {name: np.asarray(each, dtype=np.int64) for name, each in (windows or {}).items()}
    by_phase: dict[Phase, int] = {}
    for node in thread.nodes:
        by_phase[node.phase] = by_phase.get(node.phase, 0) + node.self_ns
    return Windows(
        start_ns=edges[:-1],
        end_ns=edges[1:],
        counts=amounts,
        phase_self_ns={phase: _spread(total, n) for phase, total in by_phase.items()},
        in_loop=np.ones(n, dtype=np.bool_),
    )


def _spread(total: int, n: int) -> np.ndarray:
    return np.diff(np.linspace(0, total, n + 1).astype(np.int64))


def _memory(rss_bytes: Sequence[int], reserved_bytes: Sequence[int] | None, wall_ns: int) -> Memory:
    n = len(rss_bytes)
    return Memory(
        at_ns=START_NS + np.linspace(0, wall_ns, n).astype(np.int64),
        rss_bytes=np.asarray(rss_bytes, dtype=np.int64),
        gpu_bytes=np.zeros(n, dtype=np.int64),
        gpu_busy_percent=np.zeros(n, dtype=np.int64),
        reserved_bytes=np.asarray(rss_bytes if reserved_bytes is None else reserved_bytes, dtype=np.int64),
    )


def _manifest(
    machine: Mapping[str, Any] | None, torch_threads: int | None, state: State, wall_ns: int
) -> dict[str, Any]:
    made: dict[str, Any] = {
        "format": FORMAT_VERSION,
        "name": "synthetic",
        "command": ["train.py", "--seed", "1"],
        "machine": MACHINE | dict(machine or {}),
        "versions": {"hotloop": "0.1.0", "torch": "2.13.0"},
        "started_unix_ns": 1_760_000_000 * NS,
        "pid": 100,
        "state": state,
        "seconds": wall_ns / NS,
    }
    if torch_threads is not None:
        made["torch"] = {"threads": torch_threads, "interop_threads": 1}
    return made


def causes(trace: Trace, top: int | None = None) -> list[Finding]:
    """What rules find: all findings but hotspots."""
    return [each for each in explain(trace, top) if each.kind == "cause"]
