"""How rules select the time slices (`Atom`) that they claim: by the source of a line, by function, by caller.

A line is classified by what it calls, never by the names of files or projects.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from hotloop.profiling.diagnosis.finding import Residual, clamped
from hotloop.profiling.diagnosis.time_slices import LEARNING, Atom, Loop
from hotloop.profiling.trace.model import Frame

Function = tuple[str, str]
"""File and name of a function."""


HOST_SYNC = re.compile(r"\.(item|tolist|cpu|numpy)\(|\b(float|int|bool)\((?!['\"])")
"""A tensor's value fetched into Python."""


def function_of(frame: Frame) -> Function:
    """Return the function of a frame."""
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

    Functions that also run learning, such as `main`, are not claimed. Two thirds are enough, because stacks are sampled
    more often where the interpreter lock is released, in library calls, than in plain Python.
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


def union(*claims: Iterable[Atom]) -> list[Atom]:
    """Return the atoms of several claims, each once."""
    return list({atom.index: atom for claim in claims for atom in claim}.values())


def by_function(atoms: Iterable[Atom]) -> dict[Function, list[Atom]]:
    """Group atoms by the function of their innermost own line; those without one are left out."""
    groups: dict[Function, list[Atom]] = {}
    for atom in atoms:
        if atom.own is not None:
            groups.setdefault(function_of(atom.own), []).append(atom)
    return groups


def total_ns(atoms: Iterable[Atom]) -> float:
    """Return the time of the atoms."""
    return sum(atom.ns for atom in atoms)


def busy_ns(atoms: Iterable[Atom]) -> float:
    """Return the CPU time of the atoms, which is their time on a machine that is otherwise idle."""
    atoms = list(atoms)
    return sum(atom.cpu_ns for atom in atoms) or total_ns(atoms)


def indices(atoms: Iterable[Atom]) -> frozenset[int]:
    """Return the claim that a cause makes on these atoms."""
    return frozenset(atom.index for atom in atoms)


def left_over(atoms: Iterable[Atom], mid_ns: float, low_ns: float, high_ns: float) -> Residual:
    """Make a residual from the processor time that the fixed code is expected to take instead."""
    whole = max(busy_ns(atoms), 1.0)
    return clamped(mid_ns / whole, low_ns / whole, high_ns / whole)
