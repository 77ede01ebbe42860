"""Gives own code the phase of the function that it runs in, where the flow of data showed what that function is for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from hotloop.phases import Phase
from hotloop.profiling.trace.loops import function_name
from hotloop.profiling.trace.model import Frame, Node, Sample, Thread, Trace
from hotloop.profiling.trace.roles import Function, find_roles
from hotloop.profiling.trace.slices import Known, Line, find_line_roles

NETWORKS = frozenset({Phase.ACT, Phase.FORWARD})
STEPS = (".step", ".step_wait")


def with_roles(trace: Trace) -> Trace:
    """Split own code by the roles of the user's functions."""
    thread = trace.thread
    spans = [node for node in thread.nodes if node.kind == "span"]
    steps = {node.name for node in spans if node.phase is Phase.ENV and node.name.endswith(STEPS)}
    networks = {node.name for node in spans if node.phase in (Phase.ACT, Phase.FORWARD)}
    functions = find_roles(trace.observed, steps, networks)
    own_steps = {function for function, phase in functions.items() if phase is Phase.ENV}
    lines = find_line_roles(trace.observed, Known(steps, own_steps, networks))
    if not functions and not lines:
        return trace
    split = split_by_role(thread, Roles(functions, lines))
    threads = tuple(split if each is thread else each for each in trace.main.threads)
    return replace(trace, processes=(replace(trace.main, threads=threads), *trace.processes[1:]))


@dataclass(frozen=True)
class Roles:
    """The phases of functions, and of lines in other functions."""

    functions: Mapping[Function, Phase]
    lines: Mapping[Line, Phase]


def split_by_role(thread: Thread, roles: Roles) -> Thread:
    """Give each part of own code that runs in a function with a role a node of its own."""
    next_id = max((node.id for node in thread.nodes), default=0) + 1
    samples: dict[int, list[Sample]] = {}
    for sample in thread.samples:
        samples.setdefault(sample.node, []).append(sample)
    nodes: list[Node] = []
    added: list[Node] = []
    kept: list[Sample] = []
    for node in thread.nodes:
        mine = samples.get(node.id, [])
        is_network = node.kind == "span" and node.phase in NETWORKS
        if not is_network and (node.kind == "span" or node.phase is not Phase.OWN):
            nodes.append(node)
            kept += mine
            continue
        parts: Counter[tuple[str, Phase]] = Counter()
        role_of = _use_of(node, roles) if is_network else partial(_role_of, roles=roles)
        places = [role_of(sample.stack) for sample in mine]
        for sample, place in zip(mine, places, strict=True):
            if place is not None:
                parts[place] += sample.wall_ns
        ids = {place: next_id + i for i, place in enumerate(sorted(parts))}
        next_id += len(ids)
        taken = min(sum(parts.values()), node.self_ns)
        scale = taken / sum(parts.values()) if taken else 0.0
        for (name, phase), number in ids.items():
            ns = round(parts[name, phase] * scale)
            added.append(_part(node, number, name, phase, ns))
        left = max(node.self_ns - sum(round(ns * scale) for ns in parts.values()), 0)
        total = max(node.total_ns - taken, left) if node.kind == "gap" else node.total_ns
        nodes.append(replace(node, self_ns=left, total_ns=total))
        kept += [
            sample if place is None else replace(sample, node=ids[place])
            for sample, place in zip(mine, places, strict=True)
        ]
    return replace(thread, nodes=(*nodes, *added), samples=tuple(kept))


def _role_of(stack: tuple[Frame, ...], roles: Roles) -> tuple[str, Phase] | None:
    """Return name and phase of the innermost function with a role; else of the innermost line with one."""
    own = [frame for frame in stack if frame.own]
    for frame in own:
        phase = roles.functions.get((frame.file, function_name(frame), frame.first_line))
        if phase is not None:
            return function_name(frame), phase
    for frame in own:
        phase = roles.lines.get((frame.file, frame.line))
        if phase is not None:
            return function_name(frame), phase
    return None


def _use_of(node: Node, roles: Roles) -> Callable[[tuple[Frame, ...]], tuple[str, Phase] | None]:
    """Return what tells whether a network's call acts or learns: the outermost line with one of these roles."""

    def use_of(stack: tuple[Frame, ...]) -> tuple[str, Phase] | None:
        for frame in reversed(stack):
            phase = roles.lines.get((frame.file, frame.line)) if frame.own else None
            if phase is not None and phase in NETWORKS:
                return (node.name, phase) if phase is not node.phase else None
        return None

    return use_of


def _part(node: Node, number: int, name: str, phase: Phase, ns: int) -> Node:
    return replace(
        node,
        id=number,
        parent=node.parent if node.kind == "gap" else node.id,
        name=name,
        kind="gap",
        phase=phase,
        calls=0,
        total_ns=ns,
        self_ns=ns,
        min_ns=0,
        max_ns=0,
        p50_ns=0,
        p95_ns=0,
        cpu_ns=0,
        cpu_memory_bytes=0,
        cpu_peak_bytes=0,
        gpu_memory_bytes=0,
        device_ns=0,
        counts={},
        between=(None, None),
    )
