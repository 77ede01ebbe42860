"""The user's own lines and functions by time: where it goes, in what kind of activity, and into which call.

The shares are those of the stack samples, which are taken at random moments and see every line alike. The time of a
library call counts for the line of the user's code that makes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from hotloop.phases import Phase
from hotloop.profiling.trace.model import Frame, Sample, Thread, Trace
from hotloop.profiling.trace.reading.json_schemas import ObservedPlace
from hotloop.profiling.trace.source_text import SourceText, module_of
from hotloop.profiling.trace.time_kinds import Kinds, place_of


@dataclass(frozen=True, slots=True)
class HotLine:
    """A line of the user's code, and the time in which it was the innermost one."""

    file: str
    line: int
    function: str
    source: str
    phase: str
    kind: str
    """One of `time_kinds.KIND_NAMES`: the largest part of its time."""
    callee: str | None
    """The call that takes the largest part of its time; None if that is no call."""
    expression: str
    """The expression that takes the largest part of its time; "" if unknown."""
    operands: tuple[str, ...]
    """Types and shapes of what that expression works on; empty if it was not observed."""
    share: float
    """Of the main thread's time."""
    per_env_step: float | None
    """How often it makes its main call for each environment step; None if that was not observed."""
    per_update: float | None
    own: bool
    """False for a library's line, which is listed only if no line of the user's is around it."""
    samples: int


@dataclass(frozen=True, slots=True)
class HotFunction:
    """A function of the user's code."""

    file: str
    line: int
    """Where it begins."""
    function: str
    share: float
    """Of the main thread's time, with the functions it calls."""
    self_share: float
    """The same without the user's functions that it calls."""
    calls_per_env_step: float | None


def hot_lines(trace: Trace, thread: Thread | None = None) -> list[HotLine]:
    """Return the lines of a thread, of the main one if none is given, hottest first."""
    samples = [each for each in (thread or trace.thread).samples if each.stack]
    whole = sum(each.seen_ns for each in samples)
    by_line: dict[tuple[str, int], list[Sample]] = {}
    for sample in samples:
        frame = line_of(sample.stack)
        by_line.setdefault((frame.file, frame.line), []).append(sample)
    phases = {node.id: node.phase for node in (thread or trace.thread).nodes}
    calls = LineCalls(trace, thread is None or thread is trace.thread)
    kinds = Kinds(trace, thread or trace.thread)
    lines = [_line(each, phases, trace.sources, whole, calls, kinds) for each in by_line.values()] if whole else []
    return sorted(lines, key=lambda line: (-line.share, line.file, line.line))


def hot_functions(trace: Trace, thread: Thread | None = None) -> list[HotFunction]:
    """Return the functions of a thread, of the main one if none is given, by their own time, hottest first."""
    samples = [each for each in (thread or trace.thread).samples if each.stack]
    whole = sum(each.seen_ns for each in samples)
    calls = LineCalls(trace, thread is None or thread is trace.thread)
    own, total = Counter[tuple[str, str, int]](), Counter[tuple[str, str, int]]()
    for sample in samples:
        frames = [frame for frame in sample.stack if frame.own]
        if not frames:
            continue
        keys = [(frame.file, frame.function, frame.first_line) for frame in frames]
        own[keys[0]] += sample.seen_ns
        for key in set(keys):
            total[key] += sample.seen_ns
    found = [
        HotFunction(
            file,
            first_line,
            function,
            ns / whole,
            own[file, function, first_line] / whole,
            calls.per_env_step(calls.of_function(file, function, first_line)),
        )
        for (file, function, first_line), ns in total.items()
        if whole
    ]
    return sorted(found, key=lambda each: (-each.self_share, -each.share, each.file, each.line))


def line_of(stack: tuple[Frame, ...]) -> Frame:
    """Return the innermost line of the user's own code, or the innermost line if there is none."""
    return next((frame for frame in stack if frame.own), stack[0])


class LineCalls:
    """What was counted in windows: calls by line and callee, and by function."""

    def __init__(self, trace: Trace, known: bool) -> None:
        record = trace.calls
        self._env_steps = record.counts.get("env_steps", 0) if known else 0
        self._updates = record.counts.get("updates", 0) if known else 0
        self._lines: dict[tuple[str, int], dict[str, int]] = {}
        for each in record.lines:
            self._lines.setdefault((each.file, each.line), {})[each.callee] = each.calls
        self._functions = {(each.file, each.function, each.line): each.calls for each in record.functions}

    def resolved(self, file: str, line: int, callee: str | None) -> str | None:
        """Return the full name of a callee: `self.rows.append` in the source was seen as `list.append`."""
        if callee is None or not callee.startswith(("self.", "…")):
            return callee
        same = self._same(file, line, callee)
        return max(same, key=lambda name: same[name]) if same else callee

    def of_line(self, file: str, line: int, callee: str | None) -> int | None:
        """Return how often a line made its main call; None if no call of it was seen."""
        same = self._same(file, line, callee) or self._lines.get((file, line), {})
        return max(same.values(), default=None)

    def _same(self, file: str, line: int, callee: str | None) -> dict[str, int]:
        """Return the calls seen on a line that have the callee's last name."""
        last = (callee or "").rpartition(".")[2]
        found = self._lines.get((file, line), {})
        return {name: calls for name, calls in found.items() if name.rpartition(".")[2] == last}

    def of_function(self, file: str, function: str, line: int) -> int | None:
        """Return how often a function was called; None if no call was seen."""
        return self._functions.get((file, function, line))

    def per_env_step(self, calls: int | None) -> float | None:
        """Return calls per environment step; None if either was not observed."""
        return calls / self._env_steps if calls is not None and self._env_steps else None

    def per_update(self, calls: int | None) -> float | None:
        """Return calls per update; None if either was not observed."""
        return calls / self._updates if calls is not None and self._updates else None


def _line(
    samples: list[Sample],
    phases: Mapping[int, Phase],
    sources: Mapping[str, SourceText],
    whole: int,
    calls: LineCalls,
    kinds_of: Kinds,
) -> HotLine:
    frame = line_of(samples[0].stack)
    source = sources.get(frame.file)
    kinds, callees, expressions, phase = Counter[str](), Counter[str | None](), Counter[str](), Counter[Phase]()
    operands = Counter[tuple[str, ...]]()
    for sample in samples:
        innermost = line_of(sample.stack)
        seen = kinds_of.observed.at(place_of(innermost), innermost.operation)
        kinds.update(kinds_of.divide(sample))
        callees[callee_of(sample.stack, source, seen)] += sample.seen_ns
        operands[seen.operands if seen is not None else ()] += sample.seen_ns
        if source is not None:
            expression = source.expression(innermost)
            expressions[expression] += sample.seen_ns if expression else 0
        # Samples without a part of the node's time may have been inside of spans that were switched off.
        phase[phases.get(sample.node, Phase.OWN)] += sample.wall_ns
    callee = calls.resolved(frame.file, frame.line, _largest(callees))
    made = calls.of_line(frame.file, frame.line, callee)
    return HotLine(
        file=frame.file,
        line=frame.line,
        function=frame.function,
        source=(source.line(frame.line) if source is not None else "") or frame.text,
        phase=str(_largest(phase)),
        kind=_largest(kinds),
        callee=callee,
        expression=_largest(expressions) if expressions else "",
        operands=_largest(operands),
        share=sum(sample.seen_ns for sample in samples) / whole,
        per_env_step=calls.per_env_step(made),
        per_update=calls.per_update(made),
        own=frame.own,
        samples=sum(sample.n for sample in samples),
    )


def callee_of(stack: tuple[Frame, ...], source: SourceText | None, seen: ObservedPlace | None = None) -> str | None:
    """Return what the innermost own line of a stack was calling; None if nothing, or if it is not known.

    Args:
        stack: The stack.
        source: Of the file of this line.
        seen: The instruction that was executing there, if it was observed.
    """
    if seen is not None and seen.callee:
        return seen.callee.removeprefix("__main__.")
    for i, frame in enumerate(stack):
        if frame.own:
            if i:
                return f"{module_of(stack[i - 1].file)}.{stack[i - 1].function}"
            return source.callee(frame) if source is not None and frame.operation.startswith("CALL") else None
    return None


def _largest(sums: Counter):
    """Return the key with the largest sum; of equal ones the first by name, so that reports do not vary."""
    return max(sums, key=lambda key: (sums[key], str(key)))
