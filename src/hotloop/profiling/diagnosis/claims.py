"""How rules select the time slices (`Atom`) that they claim: by the source of a line, by function, by caller.

A line is classified by what it calls, never by the names of files or projects.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

from hotloop.profiling.diagnosis.finding import Residual, clamped
from hotloop.profiling.diagnosis.time_slices import LEARNING, Atom, Function, Loop, total_ns
from hotloop.profiling.trace.model import Frame, Sample

Key = TypeVar("Key", bound=Hashable)

HOST_SYNC = re.compile(r"\.(item|tolist|cpu|numpy)\(|\b(float|int|bool)\((?!['\"])")
"""A tensor's value fetched into Python."""


def function_of(frame: Frame) -> Function:
    """Return the function of a frame."""
    return frame.file, frame.function


def bare_name(frame: Frame) -> str:
    """Return the name of a function without its class: "Room.is_loaded" is "is_loaded"."""
    return frame.function.rsplit(".", 1)[-1]


def matching(atoms: Iterable[Atom], pattern: re.Pattern[str]) -> list[Atom]:
    """Return the atoms whose innermost own line matches."""
    return [atom for atom in atoms if pattern.search(atom.text)]


def grow(seeds: Sequence[Atom], pool: Iterable[Atom], least: float = 0.5) -> list[Atom]:
    """Widen a claim to whole functions: those that spend at least `least` of their time on the seeds.

    A function that builds a batch badly is replaced as a whole, with the lines around the bad one.
    """
    wanted, pool = indices(seeds), list(pool)
    taken = set()
    for function, atoms in by_function(pool).items():
        bad = [atom for atom in atoms if atom.index in wanted]
        if bad and total_ns(bad) >= least * total_ns(atoms):
            taken.add(function)
    return [atom for atom in pool if atom.index in wanted or atom.function in taken]


def with_callers(loop: Loop, claimed: Sequence[Atom], least: float = 0.65) -> list[Atom]:
    """Widen a claim to own functions that exist for it: `least` of their time, callees included, is claimed.

    Functions that also run learning, such as `main`, are not claimed. Two thirds are enough, because stacks are sampled
    more often where the interpreter lock is released, in library calls, than in plain Python.
    """
    wanted = indices(claimed)
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


def union(*claims: Iterable[Atom]) -> list[Atom]:
    """Return the atoms of several claims, each once."""
    return list({atom.index: atom for claim in claims for atom in claim}.values())


def by_function(atoms: Iterable[Atom]) -> dict[Function, list[Atom]]:
    """Group atoms by the function of their innermost own line; those without one are left out."""
    groups: dict[Function, list[Atom]] = {}
    for atom in atoms:
        if atom.function is not None:
            groups.setdefault(atom.function, []).append(atom)
    return groups


def busy_ns(atoms: Iterable[Atom]) -> float:
    """Return the CPU time of the atoms, which is their time on a machine that is otherwise idle."""
    atoms = list(atoms)
    return sum(atom.cpu_ns for atom in atoms) or total_ns(atoms)


def indices(atoms: Iterable[Atom]) -> frozenset[int]:
    """Return the claim that a cause makes on these atoms."""
    return frozenset(atom.index for atom in atoms)


def left_over(atoms: Iterable[Atom], mid_ns: float, low: float = 0.5, high: float = 2.0) -> Residual:
    """Make a residual from the processor time that the fixed code is expected to take; bounds are multiples of it."""
    mid = mid_ns / max(busy_ns(atoms), 1.0)
    return clamped(mid, low * mid, high * mid)


def passes_through(at: Atom | Sample, files: re.Pattern[str]) -> bool:
    """Return whether the stack passes through a file whose path matches."""
    return any(files.search(frame.file) for frame in at.stack)


def most_time(times: Iterable[tuple[Key, float]]) -> Key | None:
    """Return the key with the largest sum of times; None if there are no keys."""
    total: dict[Key, float] = {}
    for key, ns in times:
        total[key] = total.get(key, 0.0) + ns
    return max(total, key=lambda key: (total[key], str(key)), default=None)
