"""The main thread's time, cut into slices (class `Atom`): a node of the call tree and a sampled stack, with its time.

Spans measure exactly how long a node took; samples show approximately on which lines. An atom combines both: the
samples of a node are scaled so that they sum to its exact self time, and a node without samples is one atom without
a stack. So the atoms of a loop sum exactly to its wall time, and a rule claims time by claiming atoms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.guessed_phases import with_guessed_phases
from hotloop.profiling.trace.model import Frame, Node, Sample, Thread, Trace
from hotloop.profiling.trace.reading.json_schemas import Machine

LEARNING = frozenset({Phase.SAMPLE, Phase.TRANSFER, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMISE, Phase.SYNC_WEIGHTS})
ENVIRONMENT = frozenset({Phase.ENV, Phase.RENDER, Phase.OBSERVE})
Function = tuple[str, str]
"""File and name of a function."""
Line = tuple[str, int]
"""File and number of a line."""
SYNCS = ("host_syncs.item", "host_syncs.cpu", "host_syncs.numpy", "host_syncs.tolist")


@dataclass(frozen=True, slots=True)
class Atom:
    """The smallest piece of time that a rule can claim."""

    index: int
    node: Node
    stack: tuple[Frame, ...]
    """Innermost first; empty where the node was never sampled."""
    ns: float
    cpu_ns: float
    n: int
    """Samples behind it."""
    own: Frame | None
    """The innermost frame of the user's own code."""

    @property
    def text(self) -> str:
        """Source of the innermost own line, "" if there is none."""
        return self.own.text if self.own else ""

    @property
    def function(self) -> Function | None:
        """The function of the innermost own line."""
        return (self.own.file, self.own.function) if self.own else None

    @property
    def line(self) -> Line | None:
        """The innermost own line."""
        return (self.own.file, self.own.line) if self.own else None


def total_ns(atoms: Iterable[Atom]) -> float:
    """Return the time of the atoms."""
    return sum(atom.ns for atom in atoms)


@dataclass(frozen=True)
class Loop:
    """A trace prepared for the rules."""

    trace: Trace
    thread: Thread
    atoms: tuple[Atom, ...]
    wall_ns: float

    @cached_property
    def counts(self) -> dict[str, int]:
        """Counters of the main process; the sum of all others for what only they count.

        A step of worker environments is counted by the worker and again by the vector environment in the
        main process: it is one step.
        """
        total: Counter[str] = Counter()
        for process in self.trace.processes[1:]:
            total.update(process.counts)
        return dict(total) | {name: amount for name, amount in self.trace.main.counts.items() if amount}

    @property
    def machine(self) -> Machine:
        """The machine that the run was recorded on."""
        return self.trace.machine

    @cached_property
    def spans(self) -> tuple[Node, ...]:
        """The spans of the main thread."""
        return tuple(node for node in self.thread.nodes if node.kind == "span")

    @property
    def env_steps(self) -> int:
        """Environment steps of the whole run, all processes."""
        return self.counts.get("env_steps", 0)

    @property
    def vector_steps(self) -> int:
        """Calls of the outermost `step`; the environment steps where no vector environment was seen."""
        return self.counts.get("vector_steps", 0) or self.env_steps

    @property
    def updates(self) -> int:
        """Optimiser updates."""
        return self.counts.get("updates", 0)

    @property
    def num_envs(self) -> float:
        """Environments stepped by one call."""
        return self.env_steps / self.vector_steps if self.vector_steps else 1.0

    def lineage(self, node: Node) -> list[Node]:
        """Return the node and its ancestors, innermost first."""
        found = [node]
        while node.parent >= 0:
            node = self.thread.by_id[node.parent]
            found.append(node)
        return found

    def parent(self, node: Node) -> Node | None:
        """Return the node's parent, None for the root."""
        return self.thread.by_id.get(node.parent)

    def phases(self, node: Node) -> frozenset[Phase]:
        """Return the phases of the node and its ancestors."""
        return self._phases[node.id]

    @cached_property
    def _phases(self) -> dict[int, frozenset[Phase]]:
        found: dict[int, frozenset[Phase]] = {}
        for node in self.thread.nodes:
            found[node.id] = found.get(node.parent, frozenset()) | {node.phase}
        return found

    def beside_env(self, node: Node) -> bool:
        """Return whether a node is the gap just before or after a span of the environment."""
        return node.kind == "gap" and not self.env_names.isdisjoint(node.name.strip("()").split(" → "))

    @cached_property
    def env_names(self) -> frozenset[str]:
        """Names of the spans that belong to the environment."""
        return frozenset(each.name for each in self.spans if each.phase in ENVIRONMENT)

    def where(self, wanted: Callable[[Atom], bool]) -> list[Atom]:
        """Return the atoms that satisfy a condition."""
        return [atom for atom in self.atoms if wanted(atom)]

    def within(self, phase: Phase) -> list[Atom]:
        """Return the atoms of a phase, including those of other phases inside it."""
        return self.where(lambda atom: phase in self.phases(atom.node))

    def of_nodes(self, nodes: Iterable[Node]) -> list[Atom]:
        """Return the atoms of some nodes."""
        chosen = {node.id for node in nodes}
        return [atom for atom in self.atoms if atom.node.id in chosen]

    def below(self, nodes: Iterable[Node]) -> list[Atom]:
        """Return the atoms of some nodes and of everything below them."""
        return self.of_nodes(each for node in nodes for each in self.thread.subtree(node))

    def inside(self, node: Node, phases: frozenset[Phase]) -> bool:
        """Return whether a node is inside a span of one of these phases; its own phase does not count."""
        return any(each.kind == "span" and each.phase in phases for each in self.lineage(node)[1:])

    def outermost(self, node: Node, phase: Phase) -> Node | None:
        """Return the outermost span of a phase that contains a node; None if there is none."""
        lineage = reversed(self.lineage(node))
        return next((each for each in lineage if each.kind == "span" and each.phase is phase), None)

    @cached_property
    def untimed(self) -> dict[str, float]:
        """By counter: its total, divided by what was counted while spans were timed.

        While the recorder times no spans, in order to save time, counts go to the root. They are assumed to be
        distributed as in the rest of the time.
        """
        timed: Counter[str] = Counter()
        for node in self.thread.nodes:
            if node.kind != "root":
                timed.update(node.counts)
        counts = self.trace.main.counts
        return {name: max(counts.get(name, 0) / amount, 1.0) for name, amount in timed.items() if amount}

    def counted(self, name: str, node: Node) -> float:
        """Return a counter's amount in a node over the whole loop."""
        return node.counts.get(name, 0) * self.untimed.get(name, 1.0)

    @property
    def host_syncs(self) -> int:
        """Values fetched from tensors into Python, in the main process."""
        return sum(self.trace.main.counts.get(name, 0) for name in SYNCS)

    def share(self, atoms: Iterable[Atom]) -> float:
        """Return the share of wall time that the atoms take."""
        return total_ns(atoms) / self.wall_ns if self.wall_ns else 0.0


def study(trace: Trace) -> Loop:
    """Cut the main thread of a trace into atoms."""
    thread = with_guessed_phases(trace.thread)
    by_node: dict[int, list[Sample]] = {}
    for sample in thread.samples:
        if sample.wall_ns > 0:
            by_node.setdefault(sample.node, []).append(sample)
    atoms: list[Atom] = []
    for node in thread.nodes:
        seen = by_node.get(node.id, [])
        sampled_ns = sum(sample.wall_ns for sample in seen)
        scale = node.self_ns / sampled_ns if sampled_ns else 0.0
        if not seen and node.self_ns > 0:
            atoms.append(Atom(len(atoms), node, (), float(node.self_ns), float(node.cpu_ns), 0, None))
        for sample in seen:
            cpu_ns = min(sample.cpu_ns, sample.wall_ns) * scale
            own = next((frame for frame in sample.stack if frame.own), None)
            atoms.append(Atom(len(atoms), node, sample.stack, sample.wall_ns * scale, cpu_ns, sample.n, own))
    return Loop(trace, thread, tuple(atoms), float(sum(node.self_ns for node in thread.nodes)))
