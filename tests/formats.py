"""Readers of exported files, as strict as the tools that open them: each returns the content or fails.

`check_trace_events` replaces Perfetto's trace processor, which is not available offline: it checks a file against the
rules of the trace-event format. `check_speedscope` checks against speedscope's published schema and the rules in its
comments.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

NUMBER = (int, float)
UNITS = {"none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"}
METADATA = {"process_name": "name", "process_sort_index": "sort_index", "thread_name": "name",
            "thread_sort_index": "sort_index"}  # fmt: skip


def read_json(path: Path) -> Any:
    """Read JSON as a browser does: no NaN, no infinity."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    data = path.read_bytes()
    text = gzip.decompress(data).decode() if path.suffix == ".gz" else data.decode()
    return json.loads(text, parse_constant=refuse)


def check_trace_events(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Check a file of trace events; return the events by their kind: M, X and C."""
    content = read_json(path)
    assert content["displayTimeUnit"] in ("ms", "ns")
    assert all(isinstance(value, str) for value in content["otherData"].values())
    by_kind: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in content["traceEvents"]:
        _check_event(event)
        by_kind[event["ph"]].append(event)
    _check_names(by_kind)
    _check_nesting(by_kind["X"])
    _check_counters(by_kind["C"])
    return by_kind


def _check_event(event: dict[str, Any]) -> None:
    assert event["ph"] in "MXC", event
    assert isinstance(event["name"], str) and event["name"], event
    assert isinstance(event["pid"], int) and isinstance(event["tid"], int), event
    assert 0 <= event["tid"] < 2**31, "viewers keep 32 bits of a thread id"
    if event["ph"] == "M":
        assert list(event["args"]) == [METADATA[event["name"]]], event
        return
    assert isinstance(event["ts"], NUMBER) and event["ts"] >= 0, event
    if event["ph"] == "X":
        assert isinstance(event["dur"], NUMBER) and event["dur"] >= 0, event
        assert isinstance(event["cat"], str) and event["cat"], event
    else:
        assert event["args"] and all(isinstance(value, NUMBER) for value in event["args"].values()), event


def _check_names(by_kind: dict[str, list[dict[str, Any]]]) -> None:
    """Every process and every track has one name, and a track id is used in only one process."""
    processes = [event["pid"] for event in by_kind["M"] if event["name"] == "process_name"]
    tracks = [(event["tid"], event["pid"]) for event in by_kind["M"] if event["name"] == "thread_name"]
    assert len(processes) == len(set(processes))
    assert len(tracks) == len(dict(tracks)), "two tracks have the same id"
    assert {(event["tid"], event["pid"]) for event in by_kind["X"]} <= set(tracks)
    assert {event["pid"] for event in by_kind["C"]} <= set(processes)


def _check_nesting(events: list[dict[str, Any]]) -> None:
    """On a track, slices are nested or disjoint; viewers drop overlapping ones."""
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        start = round(event["ts"] * 1000)
        tracks[event["pid"], event["tid"]].append((start, start + round(event["dur"] * 1000)))
    for slices in tracks.values():
        open_until: list[int] = []
        assert slices == sorted(slices, key=lambda each: (each[0], -each[1])), "parents first, in order of time"
        for start, end in slices:
            while open_until and open_until[-1] <= start:
                open_until.pop()
            assert not open_until or end <= open_until[-1], f"{start}..{end} ns overlaps one that ends {open_until}"
            open_until.append(end)


def _check_counters(events: list[dict[str, Any]]) -> None:
    last: dict[tuple[int, str], float] = {}
    for event in events:
        key = (event["pid"], event["name"])
        assert event["ts"] >= last.get(key, 0.0), "a counter goes back in time"
        last[key] = event["ts"]


def check_speedscope(path: Path) -> dict[str, Any]:
    """Check a speedscope file; return it."""
    content = read_json(path)
    assert content["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert set(content) <= {"$schema", "shared", "profiles", "name", "activeProfileIndex", "exporter"}
    frames, profiles = content["shared"]["frames"], content["profiles"]
    assert 0 <= content["activeProfileIndex"] < len(profiles)
    for frame in frames:
        assert isinstance(frame["name"], str) and set(frame) <= {"name", "file", "line", "col"}
        assert isinstance(frame.get("file", ""), str) and isinstance(frame.get("line", 0), int)
    for profile in profiles:
        assert set(profile) == {"type", "name", "unit", "startValue", "endValue", "samples", "weights"}
        assert profile["type"] == "sampled" and profile["unit"] in UNITS
        assert len(profile["samples"]) == len(profile["weights"])
        assert all(isinstance(weight, NUMBER) and weight > 0 for weight in profile["weights"])
        assert all(0 <= frame < len(frames) for stack in profile["samples"] for frame in stack)
        assert all(stack for stack in profile["samples"])
        assert profile["endValue"] - profile["startValue"] == sum(profile["weights"])
    return content
