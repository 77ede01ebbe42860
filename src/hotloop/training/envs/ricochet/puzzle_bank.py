"""Puzzle bank: solved boards on disk, with the length of the shortest solution and the number of robots it moves.

A bank is a directory with `puzzles.parquet` and `manifest.json`. Its contents depend only on its plan. It is written
atomically and never overwritten. A hash of the walls decides whether a board is held out for evaluation, so no board is
in both parts. `python -m hotloop.training.envs.ricochet DIRECTORY` makes one.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hotloop.errors import HotloopError
from hotloop.training.envs.gym_types import Flags
from hotloop.training.envs.numba_tools import kernel, random_states
from hotloop.training.envs.ricochet.board_kernels import find_stops, make_board
from hotloop.training.envs.ricochet.config import LEVELS, LONGEST, UNKNOWN, RicochetConfig
from hotloop.training.envs.ricochet.kernels import borrow_search, borrow_state
from hotloop.training.envs.ricochet.memory_layout import OPTIMAL, RANDOM, Search, State, new_state
from hotloop.training.envs.ricochet.puzzle import Puzzles, check
from hotloop.training.envs.ricochet.solver import TAKEN, new_search, solve_board
from hotloop.training.envs.validate import check_whole

FORMAT, VERSION = "hotloop ricochet bank", 1
MANIFEST, TABLE = "manifest.json", "puzzles.parquet"
BATCH = 1024
"""Boards made at a time. It affects a bank's contents, because the search depth is chosen for each batch."""

PATIENCE = 100
"""Give up on a level after this many batches without a suitable board."""

END = 255
"""Marks the end of a solution."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings that determine a bank's contents."""

    seed: int = 0
    per_level: int = 1000
    """Boards of each level. A board may belong to several levels."""
    size: int = 16
    robots: int = 4
    levels: tuple[int, ...] = (0, 1, 2, 3)
    held_out: float = 0.1
    """Share of the boards reserved for evaluation."""

    def __post_init__(self) -> None:
        for level in self.levels:
            RicochetConfig(size=self.size, robots=self.robots, level=level)
        check_whole("seed", self.seed, 0, (1 << 32) - 1)
        check_whole("per_level", self.per_level, 1, 10_000_000)
        if not self.levels:
            raise HotloopError("levels is empty: give at least one of 0, 1, 2, 3")
        if not 0 <= self.held_out < 1:
            raise HotloopError(f"held_out is {self.held_out!r}: give a share of at least 0 and below 1")


class Manifest(TypedDict):
    """Contents of `manifest.json`."""

    format: str
    version: int
    plan: dict[str, Any]
    """The fields of `Plan`."""
    puzzles: int
    sha256: str
    """Of the table's file."""
    counts: list[dict[str, int]]
    """By `optimal` and `moved`, the boards to `train` on and those `held_out`."""


@dataclass(frozen=True, slots=True, eq=False)
class Bank:
    """Boards with their solutions, in the order they were made."""

    puzzles: Puzzles
    solutions: NDArray[np.uint8]
    """uint8 [M, 8]: actions, robot · 4 + direction; 255 after the last."""
    held_out: Flags
    """bool [M]"""
    manifest: Manifest | None = None
    """None until the bank is written."""

    def take(self, level: int | None = None, held_out: bool | None = None) -> Puzzles:
        """Return the boards of a level and a part; None: all levels, or both parts."""
        mask = np.ones(len(self.puzzles), np.bool_)
        if level is not None:
            mask &= fits(level, self.puzzles.optimal, self.puzzles.moved)
        if held_out is not None:
            mask &= self.held_out == held_out
        if not mask.any():
            part = {None: "", True: " held out", False: " to train on"}[held_out]
            of_level = "" if level is None else f" of level {level}"
            raise HotloopError(f"the bank has no boards{of_level}{part}: make one that has, or ask for others")
        return self.puzzles.take(mask)


def fits(level: int, optimal: NDArray[np.int8], moved: NDArray[np.int8]) -> Flags:
    """Return which boards belong to a level, bool [M]."""
    wanted = LEVELS[level]
    long = (optimal >= wanted.shortest) & (optimal <= wanted.longest)
    return long & (moved >= wanted.fewest_robots) & (moved <= wanted.most_robots)


def make(path: str | os.PathLike[str], plan: Plan | None = None) -> Manifest:
    """Make a bank in a directory that must not exist yet; return its manifest."""
    plan, path = plan or Plan(), Path(path)
    if path.exists():
        raise HotloopError(f"{path} exists already: give another path, or remove it first")
    _require_writable(path)
    puzzles, solutions = collect(plan)
    held_out = np.array([is_held_out(row, plan.held_out) for row in puzzles.walls])
    if plan.held_out and held_out.all() | (~held_out).all():
        raise HotloopError(
            f"{len(puzzles)} boards of size {plan.size} are too few, or have walls too much alike, to hold out "
            f"{plan.held_out:g} of them: make more, larger ones, or give held_out 0"
        )
    return write(path, plan, Bank(puzzles, solutions, held_out))


def _require_writable(path: Path) -> None:
    """Fail early if the directory cannot be made, instead of after the minute that making boards takes."""
    parent = next(each for each in path.absolute().parents if each.exists())
    if not parent.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(parent))
    if not os.access(parent, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(parent))


def is_held_out(walls: NDArray[np.uint8], share: float) -> bool:
    """Return whether a board with these walls is reserved for evaluation."""
    digest = hashlib.sha256(walls.tobytes()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


def collect(plan: Plan) -> tuple[Puzzles, NDArray[np.uint8]]:
    """Make and solve boards until each level has enough; return the selected ones and their solutions."""
    wanted, search = dict.fromkeys(plan.levels, plan.per_level), new_search()
    config = RicochetConfig(size=plan.size, robots=plan.robots)
    parts, solution_parts, known = [], [], set()
    first, idle = 0, 0
    while wanted:
        state = new_state(BATCH)
        state.vitals[:, RANDOM] = random_states(range((plan.seed << 32) + first, (plan.seed << 32) + first + BATCH))
        solutions = np.full((BATCH, LONGEST), END, np.uint8)
        most = max(LEVELS[level].longest for level in wanted)
        make_batch(state, (plan.size, plan.robots, config.structures, most), search, solutions)
        puzzles = Puzzles.from_state(state, plan.size, plan.robots)
        chosen = _choose(puzzles, wanted, plan.per_level, known)
        parts.append(puzzles.take(chosen))
        solution_parts.append(solutions[chosen])
        first, idle = first + BATCH, 0 if chosen else idle + 1
        if idle == PATIENCE:
            missing = ", ".join(f"{count} of level {level}" for level, count in wanted.items())
            raise HotloopError(
                f"boards of size {plan.size} with {plan.robots} robots lack {missing}: none came up in "
                f"{PATIENCE * BATCH:,} more; ask for fewer boards, other levels or a larger size"
            )
    columns = zip(*(part.arrays().values() for part in parts), strict=True)
    return Puzzles(plan.size, *map(np.concatenate, columns)), np.concatenate(solution_parts)


def _choose(puzzles: Puzzles, wanted: dict[int, int], per_level: int, known: set[bytes]) -> list[int]:
    """Select, in order, the boards that some level still needs; counts `wanted` down and removes full levels."""
    member = {level: fits(level, puzzles.optimal, puzzles.moved) for level in wanted}
    chosen = []
    for i in np.flatnonzero(np.any(list(member.values()), axis=0)):
        levels = [level for level in wanted if member[level][i]]
        key = b"".join(each[i].tobytes() for each in (puzzles.walls, puzzles.robots, puzzles.goal, puzzles.target))
        if not levels or key in known:
            continue
        known.add(key)
        chosen.append(int(i))
        for level in levels:
            wanted[level] -= 1
            if wanted[level] == 0:
                del wanted[level]
    return chosen


@kernel
def make_batch(games: State, rules: tuple[int, int, int, int], memory: Search, solutions: np.ndarray) -> None:
    """Make and solve one board per game; `rules` is size, robots, structures and the longest solution to search for."""
    size, robots, structures, most = rules
    state, search = borrow_state(games), borrow_search(memory)
    for i in range(len(state.vitals)):
        make_board(state, i, size, robots, structures)
        find_stops(size, state.walls, state.stops, i)
        if solve_board(state, i, robots, most, search) != UNKNOWN:
            for k in range(state.vitals[i, OPTIMAL]):
                solutions[i, k] = search.path[TAKEN, k]


def write(path: Path, plan: Plan, bank: Bank) -> Manifest:
    """Write a bank to a temporary directory and rename it, so that a bank is never incomplete."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.mkdir(parents=True)
    try:
        pq.write_table(_table(bank), temporary / TABLE, compression="zstd")
        manifest = _manifest(plan, bank, _digest(temporary / TABLE))
        with open(temporary / MANIFEST, "w", encoding="utf-8") as file:
            file.write(json.dumps(manifest, indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return manifest


def _table(bank: Bank) -> pa.Table:
    columns = bank.puzzles.arrays() | {"solution": bank.solutions, "held_out": bank.held_out}
    for name in ("walls", "robots", "solution"):
        columns[name] = pa.array([row.tobytes() for row in columns[name]], pa.binary(columns[name].shape[1]))
    return pa.table(columns)


def _manifest(plan: Plan, bank: Bank, digest: str) -> Manifest:
    puzzles, kept = bank.puzzles, bank.held_out
    kinds = sorted(set(zip(puzzles.optimal.tolist(), puzzles.moved.tolist(), strict=True)))
    counts = []
    for optimal, moved in kinds:
        mask = (puzzles.optimal == optimal) & (puzzles.moved == moved)
        found = {"train": int((mask & ~kept).sum()), "held_out": int((mask & kept).sum())}
        counts.append({"optimal": optimal, "moved": moved, **found})
    return {
        "format": FORMAT,
        "version": VERSION,
        "plan": asdict(plan) | {"levels": list(plan.levels)},
        "puzzles": len(puzzles),
        "sha256": digest,
        "counts": counts,
    }


def load(path: str | os.PathLike[str]) -> Bank:
    """Read a bank. A bank of another version or a damaged one raises an error."""
    path = Path(path)
    manifest = _read_manifest(path)
    if not (path / TABLE).is_file():
        raise HotloopError(f"{path} has no {TABLE}: make the bank anew")
    try:
        whole = _digest(path / TABLE) == manifest["sha256"]
    except OSError as error:
        raise HotloopError(f"{path / TABLE} cannot be read ({error.strerror or error}): give another bank") from error
    if not whole:
        raise HotloopError(f"{path / TABLE} is damaged or cut off, it is not what was written: make the bank anew")
    table = pq.read_table(path / TABLE)

    def rows(name: str) -> NDArray[np.uint8]:
        column = table[name].combine_chunks()
        return np.frombuffer(b"".join(column.to_pylist()), np.uint8).reshape(len(column), -1)

    numbers = [table[name].to_numpy() for name in ("goal", "target", "optimal", "moved")]
    puzzles = Puzzles(manifest["plan"]["size"], rows("walls"), rows("robots"), *numbers)
    return Bank(check(puzzles), rows("solution"), table["held_out"].to_numpy(), manifest)


def _read_manifest(path: Path) -> Manifest:
    try:
        manifest: Manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    except OSError:
        raise HotloopError(
            f"{path} is no puzzle bank, there is no {MANIFEST} to read: make one with "
            "python -m hotloop.training.envs.ricochet DIRECTORY"
        ) from None
    except ValueError:
        raise HotloopError(f"{path / MANIFEST} is damaged or cut off: make the bank anew") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise HotloopError(f"{path / MANIFEST} is not of a puzzle bank: give the directory of one")
    if manifest.get("version") != VERSION:
        raise HotloopError(
            f"{path} is a puzzle bank of version {manifest.get('version')}, and this hotloop reads {VERSION}: "
            "make the bank anew"
        )
    plan = manifest.get("plan")
    if not isinstance(manifest.get("sha256"), str) or not isinstance(plan, dict) or "size" not in plan:
        raise HotloopError(f"{path / MANIFEST} lacks the table's sha256 or the plan's size: make the bank anew")
    return manifest


def _digest(file: Path) -> str:
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
