"""The report as JSON: `explain --json`, a stable interface for programs, and `--detailed`, which has everything.

Keys and units are documented in docs/explain.md. A change that breaks readers increases SCHEMA.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np

from hotloop.escaping import json_text
from hotloop.files import write_whole
from hotloop.json_types import Json, JsonObject
from hotloop.profiling.report import deep, drift
from hotloop.profiling.report.view import Report, tree_rows
from hotloop.profiling.trace.model import Trace

SCHEMA = 2


def as_dict(report: Report) -> JsonObject:
    """Return the object that `explain --json` prints."""
    return {
        "schema": SCHEMA,
        "run": report.path,
        "state": report.state,
        "exit_code": report.exit_code,
        "verdict": asdict(report.verdict),
        "complete": not report.missing,
        "wall_s": report.wall_s,
        "attributed_share": report.attributed_share,
        "overhead_share": report.overhead.share,
        "counts": asdict(report.counts),
        "counts_total": asdict(report.counts_total),
        "rates": _rates(report),
        "phases": [asdict(row) for row in report.phases],
        "kinds": dict(report.kinds),
        "lines": [asdict(line) for line in report.lines],
        "functions": [asdict(function) for function in report.functions],
        "spans": [asdict(row) for row in report.spans],
        "processes": [asdict(table) for table in report.processes],
        "drift": drift.as_dict(report.drift),
        "findings": [asdict(finding) for finding in report.findings],
        "warnings": list(report.warnings),
        **deep.as_dict(report.traced),
    }


def detailed(report: Report, trace: Trace) -> JsonObject:
    """Return the same with all details: call tree, hottest lines, windows, memory, manifest."""
    return {
        **as_dict(report),
        "name": report.name,
        "command": list(report.command),
        "machine": asdict(report.machine),
        "startup_s": report.startup_s,
        "cpu_s": report.cpu_s,
        "overhead": asdict(report.overhead),
        "counters": {process.name: dict(process.counts) for process in trace.processes},
        "tree": [asdict(row) for row in tree_rows(trace.thread, 0.0)],
        "function_tree": [asdict(row) for row in report.traced.function_tree],
        "windows": _windows(trace),
        "memory": _memory(trace),
        "manifest": dict(trace.manifest),
    }


def dumps(content: JsonObject) -> str:
    """Return indented JSON that any parser accepts."""
    return json_text(content, default=_plain)


def write(content: JsonObject, path: Path) -> None:
    """Write JSON to a file."""
    write_whole(path, f"{dumps(content)}\n".encode())


def _rates(report: Report) -> dict[str, float]:
    """Return each rate's median under its plain name, and low, high, last and mean with a suffix."""
    found: dict[str, float] = {}
    for name, rate in report.rates.items():
        found |= {name: rate.median, f"{name}_low": rate.low, f"{name}_high": rate.high}
        found |= {f"{name}_last": rate.last, f"{name}_mean": rate.mean}
    return found


def _windows(trace: Trace) -> list[JsonObject]:
    windows = trace.main.windows
    return [
        {
            "start_s": (int(windows.start_ns[i]) - trace.loop_start_ns) / 1e9,
            "end_s": (int(windows.end_ns[i]) - trace.loop_start_ns) / 1e9,
            "in_loop": bool(windows.in_loop[i]),
            "counts": {name: int(amounts[i]) for name, amounts in windows.counts.items()},
            "phase_self_s": {str(phase): int(ns[i]) / 1e9 for phase, ns in windows.phase_self_ns.items()},
        }
        for i in range(len(windows.start_ns))
    ]


def _memory(trace: Trace) -> list[JsonObject]:
    memory = trace.main.memory
    return [
        {"at_s": (int(at) - trace.loop_start_ns) / 1e9, "rss_bytes": int(rss), "gpu_bytes": int(gpu)}
        for at, rss, gpu in zip(memory.at_ns, memory.rss_bytes, memory.gpu_bytes, strict=True)
    ]


def _plain(value: np.generic | Path) -> Json:
    return value.item() if isinstance(value, np.generic) else str(value)
