"""The report as JSON: `explain --json`, a contract with programs, and `--detailed`, everything there is.

Keys and units are documented in docs/; a change that breaks a reader raises SCHEMA.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from hotloop.escaping import json_text
from hotloop.files import write_whole
from hotloop.profiling.report import deep, drift
from hotloop.profiling.report.view import ProcessTable, Report, tree_rows
from hotloop.profiling.trace.model import Frame, Thread, Trace

SCHEMA = 1
HOTTEST = 50
"""Lines of code in the detailed report."""


def as_dict(report: Report) -> dict[str, Any]:
    """Return the contract of `explain --json`."""
    return {
        "schema": SCHEMA,
        "run": report.path,
        "state": report.state,
        "exit_code": report.exit_code,
        "complete": not report.missing,
        "wall_s": report.wall_s,
        "attributed_share": report.attributed_share,
        "overhead_share": report.overhead.share,
        "counts": asdict(report.counts),
        "counts_total": asdict(report.counts_total),
        "rates": _rates(report),
        "phases": [asdict(row) for row in report.phases],
        "spans": [asdict(row) for row in report.spans],
        "processes": [_process(table) for table in report.processes],
        "drift": drift.as_dict(report.drift),
        "findings": [asdict(finding) for finding in report.findings],
        "warnings": list(report.warnings),
        **deep.as_dict(report.traced),
    }


def detailed(report: Report, trace: Trace) -> dict[str, Any]:
    """Return the contract and all that stands behind it: call tree, hottest lines, windows, memory."""
    return as_dict(report) | {
        "name": report.name,
        "command": list(report.command),
        "machine": asdict(report.machine),
        "startup_s": report.startup_s,
        "cpu_s": report.cpu_s,
        "overhead": asdict(report.overhead),
        "counters": {process.name: dict(process.counts) for process in trace.processes},
        "tree": [asdict(row) for row in tree_rows(trace.thread, 0.0)],
        "function_tree": [asdict(row) for row in report.traced.function_tree],
        "hottest_lines": hottest_lines(trace.thread),
        "windows": _windows(trace),
        "memory": _memory(trace),
        "manifest": dict(trace.manifest),
    }


def dumps(content: dict[str, Any]) -> str:
    """Return JSON text that any parser accepts, readable by people."""
    return json_text(content, default=_plain)


def write(content: dict[str, Any], path: Path) -> None:
    """Write JSON to a file."""
    write_whole(path, f"{dumps(content)}\n".encode())


def hottest_lines(thread: Thread) -> list[dict[str, Any]]:
    """Return the user's own lines in which most time was seen, with the node that was open.

    A moment belongs to the innermost line of the user's own code, or of any code where there is none.
    """
    found: dict[tuple[int, Frame], list[int]] = {}
    for sample in thread.samples:
        if not sample.stack:
            continue
        line = next((frame for frame in sample.stack if frame.own), sample.stack[0])
        sums = found.setdefault((sample.node, line), [0, 0, 0])
        for i, value in enumerate((sample.n, sample.wall_ns, sample.cpu_ns)):
            sums[i] += value
    ranked = sorted(found.items(), key=lambda item: -item[1][1])[:HOTTEST]
    return [
        asdict(line)
        | {
            "path": list(thread.path(thread.by_id[node])),
            "phase": str(thread.by_id[node].phase),
            "samples": n,
            "wall_s": wall_ns / 1e9,
            "cpu_s": cpu_ns / 1e9,
            "share": wall_ns / thread.wall_ns if thread.wall_ns else 0.0,
        }
        for (node, line), (n, wall_ns, cpu_ns) in ranked
    ]


def _rates(report: Report) -> dict[str, float]:
    """Return the median of a rate's windows under its plain name; beside it their low, high and last, and the mean."""
    found: dict[str, float] = {}
    for name, rate in report.rates.items():
        found |= {name: rate.median, f"{name}_low": rate.low, f"{name}_high": rate.high}
        found |= {f"{name}_last": rate.last, f"{name}_mean": rate.mean}
    return found


def _process(table: ProcessTable) -> dict[str, Any]:
    return asdict(table)


def _windows(trace: Trace) -> list[dict[str, Any]]:
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


def _memory(trace: Trace) -> list[dict[str, Any]]:
    memory = trace.main.memory
    return [
        {"at_s": (int(at) - trace.loop_start_ns) / 1e9, "rss_bytes": int(rss), "gpu_bytes": int(gpu)}
        for at, rss, gpu in zip(memory.at_ns, memory.rss_bytes, memory.gpu_bytes, strict=True)
    ]


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        return value.item()  # a numpy number
    return str(value)
