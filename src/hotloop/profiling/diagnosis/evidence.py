"""What rules show as evidence: hot lines, growth over the run, and numbers as `hotloop.numbers` writes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hotloop import numbers
from hotloop.phases import Phase
from hotloop.profiling.diagnosis.time_slices import Atom, Line, Loop, total_ns

percent = numbers.short_percent
duration = numbers.duration
size = numbers.amount
times = numbers.times


@dataclass(frozen=True, slots=True)
class HotLine:
    """A line of the user's own code and the time in which it was the innermost own line."""

    file: str
    line: int
    text: str
    ns: float


def hot_lines(atoms: Iterable[Atom]) -> list[HotLine]:
    """Return the own lines of the atoms, hottest first."""
    found: dict[Line, HotLine] = {}
    for atom in atoms:
        if atom.line is not None:
            before = found[atom.line].ns if atom.line in found else 0.0
            found[atom.line] = HotLine(*atom.line, atom.text, before + atom.ns)
    return sorted(found.values(), key=lambda line: (-line.ns, line.file, line.line))


def meeting_line(atoms: Sequence[Atom], least: float = 0.8) -> Line | None:
    """Return the innermost own call through which at least `least` of the time goes."""
    through: dict[Line, float] = {}
    depth: dict[Line, int] = {}
    for atom in atoms:
        own = [(frame.file, frame.line) for frame in reversed(atom.stack) if frame.own]
        for i, line in enumerate(dict.fromkeys(own)):
            through[line] = through.get(line, 0.0) + atom.ns
            depth[line] = max(depth.get(line, 0), i)
    seen_ns = total_ns(atom for atom in atoms if atom.own is not None)
    common = [line for line, ns in through.items() if ns >= least * seen_ns]
    return max(common, key=lambda line: depth[line], default=None)


def copy_speed(loop: Loop) -> float:
    """Return the machine's measured copy speed in bytes a second; a modest guess if it was not measured."""
    return float(loop.machine.copy_bytes_per_s or 5e9)


def growth(loop: Loop, phase: Phase, counter: str) -> float:
    """Return the cost of a phase for each count in the last third of the windows, divided by that in the first."""
    windows = loop.trace.main.windows
    spent, counted = windows.phase_self_ns.get(phase), windows.counts.get(counter)
    if spent is None or counted is None:
        return 1.0
    spent, counted = spent[windows.in_loop], counted[windows.in_loop]
    third = len(spent) // 3
    if not third or not counted[:third].sum() or not counted[-third:].sum() or not spent[:third].sum():
        return 1.0
    first = spent[:third].sum() / counted[:third].sum()
    return float(spent[-third:].sum() / counted[-third:].sum() / first)


def quoted(line: HotLine) -> str:
    """Write a hot line: file, number and source."""
    name = line.file.replace("\\", "/").rsplit("/", 1)[-1]
    return f"{name}:{line.line}  {line.text}"


def hottest(loop: Loop, atoms: Sequence[Atom], top: int = 3, label: str = "hottest lines") -> str:
    """Write the hottest own lines of a claim, with their shares of the loop."""
    lines = hot_lines(atoms)[:top]
    shown = "; ".join(f"{quoted(each)} ({percent(each.ns / loop.wall_ns)})" for each in lines)
    return f"{label}: {shown}"
