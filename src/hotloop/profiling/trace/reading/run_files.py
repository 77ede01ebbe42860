"""Reads the files of a run directory into typed data and validates them. All code that uses the result trusts it.

A damaged file is used up to the damage, and the damage is reported. If an essential file is damaged, the process is
unreadable.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from hotloop.errors import RunNotFound, RunUnreadable
from hotloop.json_types import JsonObject
from hotloop.profiling.trace import stream_store
from hotloop.profiling.trace.build.columns import Table
from hotloop.profiling.trace.deep import LookFiles
from hotloop.profiling.trace.model import FORMAT_VERSION
from hotloop.profiling.trace.printed_timings import Claims
from hotloop.profiling.trace.reading import limits
from hotloop.profiling.trace.reading.column_checks import Totals, check_memory, check_table, check_totals
from hotloop.profiling.trace.reading.decode import decode
from hotloop.profiling.trace.reading.json_schemas import (
    CallsRecord,
    LayersRecord,
    LookRecord,
    Manifest,
    ObservedRecord,
    ProcessRecord,
    SourcesRecord,
    StateRecord,
)
from hotloop.profiling.trace.reading.names import Names, index_names, steps_up
from hotloop.profiling.trace.reading.open_files import Budget, Malformed
from hotloop.profiling.trace.reading.plain_json import read_json
from hotloop.profiling.trace.source_text import SourceText

MANIFEST = "run.json"
PROCESS = "process.json"
STREAMS = ("windows", "spans", "counters", "samples", "memory")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ProcessParts:
    """A process's files, read."""

    folder: Path
    process: ProcessRecord
    state: StateRecord
    names: Names
    totals: Totals
    windows: Table
    spans: Table
    counters: Table
    samples: Table
    memory: Table
    damage: tuple[str, ...] = ()
    """Problems with the files."""
    shift_ns: int = 0
    """Offset that was added to its clock to get the main process's clock."""


def read_manifest(path: Path) -> tuple[Manifest, JsonObject]:
    """Return a run's manifest, and all that `run.json` says as plain JSON.

    Raises:
        RunNotFound: There is nothing at the path.
        RunUnreadable: What is there is not a run, or was written by a newer hotloop.
    """
    if not path.exists():
        raise RunNotFound(f"no run at {path}: see what there is with `hotloop ls`")
    file = path / MANIFEST
    try:
        content = read_json(file)
    except Malformed as error:
        raise RunUnreadable(f"{file} cannot be read ({error}): record the run again") from error
    if content is None:
        raise RunUnreadable(f"{path} is not a run of hotloop (it has no {MANIFEST}): see `hotloop ls`")
    found = content.get("format")
    if type(found) is int and found > FORMAT_VERSION:
        raise RunUnreadable(
            f"{path} has format {found}, this hotloop reads up to {FORMAT_VERSION}: upgrade hotloop to read it"
        )
    try:
        return decode(Manifest, content), content
    except Malformed as error:
        raise RunUnreadable(f"{file} was not written by hotloop ({error}): see `hotloop ls`") from error


def process_folders(run: Path) -> list[Path]:
    """Return the folders of a run's processes."""
    return [path.parent for path in sorted(run.glob(f"*/{PROCESS}"))]


def read_record(kind: type[T], path: Path, budget: Budget | None = None) -> T | None:
    """Return what a JSON file of a process holds, None if there is no such file.

    Raises:
        Malformed: It holds something else.
    """
    content = read_json(path, budget)
    if content is None:
        return None
    record = decode(kind, content)
    tree = record.tree if isinstance(record, LookRecord) else record.layers if isinstance(record, LayersRecord) else ()
    for i, row in enumerate(tree):
        if row.parent >= i:  # Walking such a tree might not end.
            raise Malformed(f"row {i} has a parent after it")
    return record


def read_process(folder: Path, budget: Budget) -> ProcessParts:
    """Read the files of a process.

    Raises:
        Malformed: `process.json` or `state.json` is not what it should be, or the process is too large.
    """
    process = read_record(ProcessRecord, folder / PROCESS, budget)
    if process is None:
        raise Malformed(f"it has no {PROCESS}")
    state = read_record(StateRecord, folder / "state.json", budget) or StateRecord()
    tables = {name: read_table(folder, name, state.state == "finished", budget) for name in STREAMS}
    damage = [problem for _, problem in tables.values()]
    totals, problem = check_totals(stream_store.read_totals(folder, budget))
    damage.append(_damage(folder, "totals.arrow", problem))
    # Read last: a running process writes names before it uses them.
    entries, cut = stream_store.read_names(folder, budget)
    names, problem = index_names(entries)
    windows, spans, counters, samples, memory = (tables[name][0] for name in STREAMS)
    problem = problem or cut or ("it lacks names that the tables use" if _lacks_names(windows, names) else "")
    damage.append(_damage(folder, "names.jsonl", problem))
    if not budget.take_work(sum(map(steps_up, names.nodes.values()))):
        raise Malformed("its call trees are larger than what hotloop reads")
    problems = tuple(filter(None, damage))
    return ProcessParts(folder, process, state, names, totals, windows, spans, counters, samples, memory, problems)


def _lacks_names(windows: Table, names: Names) -> bool:
    used = np.unique(windows["thread"] << 31 | windows["node"])
    known = [thread << 31 | node for thread, nodes in names.nodes.items() for node in nodes]
    return not np.isin(used, np.array(known, np.int64)).all()


def read_table(folder: Path, name: str, ended: bool, budget: Budget | None = None) -> tuple[Table, str]:
    """Return a table up to its first invalid row, and what is wrong with the rest.

    If the process has `ended`, a stream without an end was truncated.
    """
    file = stream_store.read_file(folder, name, budget)
    table, problem = check_table(file)
    if name == "memory":
        table, disorder = check_memory(table)
        problem = problem or disorder
    problem = problem or file.damage or ("it is cut" if ended and not file.closed else "")
    return table, _damage(folder, f"{name}.arrows", problem)


def read_claims(run: Path, budget: Budget | None = None) -> tuple[Claims, list[str]]:
    """Return the timings printed by all processes of a run, and what could not be read."""
    found, damage = read_records(Claims, run, "claims.json", budget)
    claims = tuple(each for record in found for each in record.claims)
    layers = tuple(each for record in found for each in record.layers)
    return Claims(claims, layers, next((each.failed for each in found if each.failed), "")), damage


def read_looks(run: Path, budget: Budget | None = None) -> tuple[LookFiles, list[str]]:
    """Return the files of deep profiling, and what could not be read."""
    functions, wrong_functions = read_records(LookRecord, run, "functions.json", budget)
    operators, wrong_operators = read_records(LookRecord, run, "operators.json", budget)
    layers, wrong_layers = read_records(LayersRecord, run, "layers.json", budget)
    files = LookFiles(next(iter(functions), None), next(iter(operators), None), next(iter(layers), None))
    return files, [*wrong_functions, *wrong_operators, *wrong_layers]


def read_calls(run: Path, budget: Budget | None = None) -> tuple[CallsRecord, list[str]]:
    """Return the calls that were counted in the main process, and what could not be read."""
    records, damage = read_records(CallsRecord, run, "calls.json", budget)
    return records[0] if records else CallsRecord(), damage


def read_observed(run: Path, budget: Budget | None = None) -> tuple[ObservedRecord, list[str]]:
    """Return what was seen while the main thread was followed, and what could not be read."""
    records, damage = read_records(ObservedRecord, run, "observed.json", budget)
    return records[0] if records else ObservedRecord(), damage


def read_sources(run: Path, budget: Budget | None = None) -> tuple[dict[str, SourceText], list[str]]:
    """Return the user's files by path, and what could not be read."""
    records, damage = read_records(SourcesRecord, run, "sources.json", budget)
    files = (each for record in records for each in record.files)
    return {each.file: SourceText(each.file, each.digest, each.lines) for each in files}, damage


def read_records(kind: type[T], run: Path, name: str, budget: Budget | None = None) -> tuple[list[T], list[str]]:
    """Return the files of one name of all processes, and what is wrong with those that cannot be read."""
    found: list[T] = []
    damage: list[str] = []
    for path in sorted(run.glob(f"*/{name}"))[: limits.PROCESSES]:
        try:
            record = read_record(kind, path, budget)
        except Malformed as error:
            damage.append(_damage(path.parent, name, str(error)))
            continue
        found += [record] if record is not None else []
    return found, damage


def _damage(folder: Path, file: str, problem: str) -> str:
    return f"{folder.name}/{file}: {problem}" if problem else ""
