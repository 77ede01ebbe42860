"""What the rules have in common: which lines are hot, what a line does, and the formatters of `hotloop.numbers`.

A line is classified by what it calls, never by the names of files or projects. Everything here is pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hotloop import numbers
from hotloop.phases import Phase
from hotloop.profiling.diagnosis.finding import Residual, clamped
from hotloop.profiling.diagnosis.time_slices import LEARNING, Atom, Loop
from hotloop.profiling.trace.model import Frame

percent = numbers.short_percent
duration = numbers.duration
size = numbers.amount
times = numbers.times

Function = tuple[str, str]
"""File and name of a function."""

HOST_SYNC = re.compile(r"\.(item|tolist|cpu|numpy)\(|\b(float|int|bool)\((?!['\"])")
"""A tensor's value fetched into Python."""


@dataclass(frozen=True, slots=True)
class HotLine:
    """A line of the user's own code and the time in which it was the innermost own line."""

    file: str
    line: int
    text: str
    ns: float


def hot_lines(atoms: Iterable[Atom]) -> list[HotLine]:
    """Return the own lines of the atoms, hottest first."""
    found: dict[tuple[str, int], HotLine] = {}
    for atom in atoms:
        if atom.own is None:
            continue
        key = (atom.own.file, atom.own.line)
        before = found[key].ns if key in found else 0.0
        found[key] = HotLine(*key, atom.own.text, before + atom.ns)
    return sorted(found.values(), key=lambda line: (-line.ns, line.file, line.line))


def meeting_line(atoms: Sequence[Atom], least: float = 0.8) -> tuple[str, int] | None:
    """Return file and line of the innermost own call through which at least `least` of the time goes."""
    through: dict[tuple[str, int], float] = {}
    depth: dict[tuple[str, int], int] = {}
    for atom in atoms:
        own = [(frame.file, frame.line) for frame in reversed(atom.stack) if frame.own]
        for i, line in enumerate(dict.fromkeys(own)):
            through[line] = through.get(line, 0.0) + atom.ns
            depth[line] = max(depth.get(line, 0), i)
    seen_ns = total_ns(atom for atom in atoms if atom.own is not None)
    common = [line for line, ns in through.items() if ns >= least * seen_ns]
    return max(common, key=lambda line: depth[line], default=None)


def function_of(frame: Frame) -> Function:
    """Return which function a frame is in."""
    return frame.file, frame.function


def bare_name(frame: Frame) -> str:
    """Return the name of a function without its class: "Room.is_loaded" is "is_loaded"."""
    return frame.function.rsplit(".", 1)[-1]


def own_text(atom: Atom) -> str:
    """Return the source of the innermost own line, "" if there is none."""
    return atom.own.text if atom.own else ""


def matching(atoms: Iterable[Atom], pattern: re.Pattern[str]) -> list[Atom]:
    """Return the atoms whose innermost own line matches."""
    return [atom for atom in atoms if pattern.search(own_text(atom))]


def grow(seeds: Sequence[Atom], pool: Iterable[Atom], least: float = 0.5) -> list[Atom]:
    """Widen a claim to whole functions: those that spend at least `least` of their time on the seeds.

    A function that builds a batch badly is replaced as a whole, with the lines around the bad one.
    """
    wanted = {atom.index for atom in seeds}
    bad: dict[Function, float] = {}
    whole: dict[Function, float] = {}
    pool = list(pool)
    for atom in pool:
        if atom.own is not None:
            key = function_of(atom.own)
            whole[key] = whole.get(key, 0.0) + atom.ns
            if atom.index in wanted:
                bad[key] = bad.get(key, 0.0) + atom.ns
    taken = {key for key, ns in bad.items() if ns >= least * whole[key]}
    return [atom for atom in pool if atom.index in wanted or (atom.own is not None and function_of(atom.own) in taken)]


def with_callers(loop: Loop, claimed: Sequence[Atom], least: float = 0.65) -> list[Atom]:
    """Widen a claim to own functions that exist for it: `least` of their time, callees included, is claimed.

    Functions that learning passes through too, such as `main`, are left alone. Two thirds are enough, for
    stacks are seen more often where the interpreter lock is let go, in library calls, than in plain Python.
    """
    wanted = {atom.index for atom in claimed}
    inside: dict[Function, float] = {}
    whole: dict[Function, float] = {}
    for atom in loop.atoms:
        learning = atom.node.phase in LEARNING
        for key in {function_of(frame) for frame in atom.stack if frame.own}:
            whole[key] = whole.get(key, 0.0) + (math.inf if learning else atom.ns)
            inside[key] = inside.get(key, 0.0) + (atom.ns if atom.index in wanted else 0.0)
    taken = {key for key, ns in inside.items() if ns > 0 and ns >= least * whole[key]}
    return [
        atom
        for atom in loop.atoms
        if atom.index in wanted or any(frame.own and function_of(frame) in taken for frame in atom.stack)
    ]


def total_ns(atoms: Iterable[Atom]) -> float:
    """Return the time of the atoms."""
    return sum(atom.ns for atom in atoms)


def busy_ns(atoms: Iterable[Atom]) -> float:
    """Return the processor time of the atoms: what they take on a machine that does nothing else."""
    atoms = list(atoms)
    return sum(atom.cpu_ns for atom in atoms) or total_ns(atoms)


def indices(atoms: Iterable[Atom]) -> frozenset[int]:
    """Return the claim that a cause makes on these atoms."""
    return frozenset(atom.index for atom in atoms)


def left_over(atoms: Iterable[Atom], mid_ns: float, low_ns: float, high_ns: float) -> Residual:
    """Make a residual from the processor time that the fixed code is expected to take instead."""
    whole = max(busy_ns(atoms), 1.0)
    return clamped(mid_ns / whole, low_ns / whole, high_ns / whole)


def copy_speed(loop: Loop) -> float:
    """Return the machine's measured copy speed in bytes a second; a modest guess if it was not measured."""
    return float(loop.machine.get("copy_bytes_per_s") or 5e9)


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


def hottest(loop: Loop, atoms: Sequence[Atom], top: int = 3) -> str:
    """Write the hottest own lines of a claim, with their shares of the loop."""
    lines = hot_lines(atoms)[:top]
    return "hottest lines: " + "; ".join(f"{quoted(each)} ({percent(each.ns / loop.wall_ns)})" for each in lines)
