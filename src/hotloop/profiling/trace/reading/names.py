"""What the numbers of a process's tables stand for, from `names.jsonl`: spans, counters, threads, nodes, stacks.

Entries are appended as they occur, and an entry comes after those that it refers to. So once each node was checked
against those before it, the tree is known to be connected and without cycles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from hotloop.hook_kinds import Hook
from hotloop.json_types import JsonObject
from hotloop.phases import Phase
from hotloop.profiling.trace.model import Frame, Kind
from hotloop.profiling.trace.reading import limits
from hotloop.profiling.trace.reading.decode import Between, Index, decode
from hotloop.profiling.trace.reading.open_files import Malformed

OptionalIndex = Annotated[int, Between(-1, (1 << 31) - 1)]
"""-1 is unknown."""


@dataclass(frozen=True, slots=True)
class SpanName:
    """A span."""

    code: Index
    name: str
    phase: Phase | None = None
    hook: Annotated[int, Between(0, len(Hook))] = 0


@dataclass(frozen=True, slots=True)
class CounterName:
    """A counter."""

    code: Annotated[int, Between(0, (1 << 28) - 1)]
    name: str


@dataclass(frozen=True, slots=True)
class StackName:
    """A stack, innermost first."""

    id: Index
    frames: Annotated[tuple[int, ...], Between(0, limits.STACK_FRAMES)]


@dataclass(frozen=True, slots=True)
class ThreadName:
    """A thread."""

    id: Index
    ident: Annotated[int, Between(-(1 << 63), (1 << 63) - 1)]
    name: str
    main: bool


@dataclass(frozen=True, slots=True)
class Sibling:
    """The span before or after a gap."""

    name: str
    phase: Phase | None = None


@dataclass(frozen=True, slots=True)
class NodeName:
    """A node of a thread's call tree."""

    thread: Index
    id: Annotated[int, Between(0, limits.NODES - 1)]
    parent: Annotated[int, Between(-1, limits.NODES - 1)]
    kind: Kind
    code: Index = 0
    """Of a span."""
    name: str = ""
    phase: Phase | None = None
    before: Sibling | None = None
    """Of a gap, like the next two."""
    after: Sibling | None = None
    dark: bool = False
    """Whether it is time in which the spans below its parent were not timed, to reduce overhead."""
    evaluating: bool = False
    """Whether it is inside an evaluation. Not in the file, but derived."""

    @property
    def label(self) -> str:
        """What it is called in a report."""
        if self.kind == "gap":
            before, after = (each.name if each else "·" for each in (self.before, self.after))
            return f"({before} → {after})"
        return "(thread)" if self.kind == "root" else self.name

    @property
    def lit_gap(self) -> bool:
        """Whether it is a gap between spans that were timed."""
        return self.kind == "gap" and not self.dark


@dataclass(frozen=True, slots=True)
class FrameName:
    """A line of code."""

    id: Index
    function: str
    file: str
    line: Index
    text: str
    own: bool
    end_line: OptionalIndex = -1
    column: OptionalIndex = -1
    end_column: OptionalIndex = -1
    operation: str = ""
    first_line: Index = 0


Nodes = Mapping[int, Mapping[int, NodeName]]
"""The nodes of each thread by their ids."""


@dataclass(frozen=True, slots=True)
class Names:
    """All names of a process."""

    spans: dict[int, SpanName] = field(default_factory=dict)
    counters: dict[int, str] = field(default_factory=dict)
    threads: dict[int, ThreadName] = field(default_factory=dict)
    nodes: dict[int, dict[int, NodeName]] = field(default_factory=dict)
    stacks: dict[int, tuple[Frame, ...]] = field(default_factory=dict)

    @property
    def main_thread(self) -> int | None:
        """The id of the process's main thread."""
        return next((each.id for each in self.threads.values() if each.main), None)

    def code_of(self, counter: str) -> int | None:
        """Return the code of a counter."""
        return next((code for code, name in self.counters.items() if name == counter), None)


Entry = SpanName | CounterName | ThreadName | NodeName | FrameName | StackName
KINDS: dict[str, type[Entry]] = {
    "span": SpanName,
    "counter": CounterName,
    "thread": ThreadName,
    "node": NodeName,
    "frame": FrameName,
    "stack": StackName,
}


def code_of(known: Mapping[int, NodeName], node: int) -> int:
    """Return the code of the span that a node is; 0 if it is none."""
    found = known.get(node)
    return found.code if found is not None else 0


def steps_up(known: Mapping[int, NodeName]) -> int:
    """Return how many steps it takes to go from each node of a thread up to its root."""
    depths: dict[int, int] = {}
    for number, node in sorted(known.items()):
        depths[number] = depths.get(node.parent, 0) + 1
    return sum(depths.values())


def index_names(entries: Iterable[JsonObject]) -> tuple[Names, str]:
    """Return the names of a process, up to the first entry that is wrong, and what is wrong with it."""
    names = Names()
    adding = _Adding(names)
    try:
        for entry in entries:
            kind = KINDS.get(str(entry.get("is")))
            if kind is not None:
                adding.add(decode(kind, entry))
    except Malformed as error:
        return names, str(error)
    return names, ""


class _Adding:
    """Names being read."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._frames: dict[int, Frame] = {}
        self._depths: dict[tuple[int, int], int] = {}

    def add(self, entry: Entry) -> None:
        """Add one. What is beyond the limits is left out: rows that refer to it are ignored."""
        names = self._names
        match entry:
            case SpanName() if len(names.spans) < limits.SPANS:
                names.spans[entry.code] = entry
            case CounterName() if len(names.counters) < limits.COUNTERS:
                names.counters[entry.code] = entry.name
            case ThreadName() if len(names.threads) < limits.THREADS:
                _require(not entry.main or names.main_thread is None, "two threads are the main one")
                _require(entry.id not in names.threads, f"thread {entry.id} is named twice")
                names.threads[entry.id] = entry
            case NodeName() if entry.thread in names.threads:
                self._add_node(entry)
            case FrameName() if len(self._frames) < limits.FRAMES:
                self._frames[entry.id] = Frame(
                    entry.function,
                    entry.file,
                    entry.line,
                    entry.text,
                    entry.own,
                    entry.end_line,
                    entry.column,
                    entry.end_column,
                    entry.operation,
                    entry.first_line,
                )
            case StackName() if len(names.stacks) < limits.STACKS:
                names.stacks[entry.id] = tuple(self._frames[each] for each in entry.frames if each in self._frames)

    def _add_node(self, node: NodeName) -> None:
        known = self._names.nodes.setdefault(node.thread, {})
        where = f"node {node.id} of thread {node.thread}"
        _require(node.id not in known, f"{where} is named twice")
        if node.kind == "root":
            _require(node.id == 0 and node.parent == -1, f"{where} is a root, but not the first node")
            depth = 0
        else:
            _require(node.parent < node.id and node.parent in known, f"{where} has no parent before it")
            _require(known[node.parent].kind != "gap", f"{where} lies in the time between two spans")
            depth = self._depths[node.thread, node.parent] + 1
            _require(depth <= limits.DEPTH, f"{where} is nested deeper than {limits.DEPTH} spans")
        self._depths[node.thread, node.id] = depth
        known[node.id] = node


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise Malformed(problem)
