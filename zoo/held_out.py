"""Measure `hotloop explain` on cases that were written by people who had not seen hotloop's rules.

Each case of a batch has `slow.py`, `fixed.py` and `truth.toml`, or only `clean.py`. Is the planted line the first
finding, or among the first three? Are there causes on the repaired and the clean scripts? Whether the cause is rightly
named is for a person to judge: the titles are printed beside the truth.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

HOTLOOP = Path(sys.executable).with_name("hotloop")
NEAR, SHORT = 3, 30
"""A finding is at the right place within 3 lines, or anywhere in the planted function if that has under 30 lines."""
TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Result:
    """What was found in a case."""

    case: str
    cause: str
    """The truth, in words."""
    first: bool | None
    """Whether the first finding is at the planted place; None for a clean case."""
    among_three: bool | None
    titles: tuple[str, ...]
    """Kind, place and title of the first three findings."""
    false_causes: tuple[str, ...]
    """Causes that were told on the repaired or clean script, with their gains."""
    gain: float | None
    """Measured, as the case says."""
    told: tuple[float, float, float] | None
    """Gain of the finding at the planted place, with its bounds; None if it is a hotspot or was not found."""


def fingerprint(batch: Path) -> str:
    """Return a hash of all files of a batch."""
    digest = hashlib.sha256()
    for path in sorted(batch.glob("*/*")):
        if path.suffix in (".py", ".toml"):
            digest.update(str(path.relative_to(batch)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def explain(script: Path, seconds: float, kept: Path) -> list[dict[str, Any]]:
    """Record a script and return its findings."""
    run = kept / f"{script.parent.name}-{script.stem}"
    command = [HOTLOOP, "run", "--out", run, script.name, "--seconds", seconds, "--seed", "0"]
    subprocess.run(
        [str(each) for each in command], cwd=script.parent, check=True, capture_output=True, timeout=TIMEOUT_S
    )
    told = subprocess.run([HOTLOOP, "explain", run, "--json"], check=True, capture_output=True, text=True, timeout=60)
    return json.loads(told.stdout)["findings"]


def right_places(script: Path, truth: dict[str, Any]) -> list[tuple[int, int]]:
    """Return the ranges of lines that are right to blame."""
    ranges = [tuple(truth["lines"]), *map(tuple, truth.get("also_right", ()))]
    places = [(first - NEAR, last + NEAR) for first, last in ranges]
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            last = node.end_lineno or node.lineno
            inside = any(node.lineno <= first and end <= last for first, end in ranges)
            if inside and last - node.lineno + 1 < SHORT:
                places.append((node.lineno, last))
    return places


def study(case: Path, seconds: float, kept: Path) -> Result:
    """Record and judge one case."""
    truth = tomllib.loads((case / "truth.toml").read_text(encoding="utf-8"))
    if truth.get("clean"):
        findings = explain(case / "clean.py", seconds, kept)
        return Result(case.name, "", None, None, _titles(findings), _causes(findings), None, None)
    findings, repaired = (explain(case / name, seconds, kept) for name in ("slow.py", "fixed.py"))
    places = right_places(case / "slow.py", truth)
    hits = [_is_at(each, places) for each in findings]
    found = next((each for each, hit in zip(findings, hits, strict=True) if hit and each["kind"] == "cause"), None)
    told = (found["gain"], found["gain_low"], found["gain_high"]) if found else None
    titles, false = _titles(findings), _causes(repaired)
    return Result(case.name, truth["cause"], any(hits[:1]), any(hits[:3]), titles, false, truth.get("gain"), told)


def _is_at(finding: dict[str, Any], places: list[tuple[int, int]]) -> bool:
    return any(first <= finding["line"] <= last for first, last in places)


def _titles(findings: list[dict[str, Any]]) -> tuple[str, ...]:
    return tuple(f"{each['kind']} {each['line']} {each['title']} ({each['gain']:.2f})" for each in findings[:3])


def _causes(findings: list[dict[str, Any]]) -> tuple[str, ...]:
    return tuple(f"{each['rule']} {each['gain']:.2f}" for each in findings if each["kind"] == "cause")


def summary(results: list[Result]) -> str:
    """Return the rates of a batch."""
    slow = [each for each in results if each.first is not None]
    errors = [abs(each.told[0] / each.gain - 1) for each in slow if each.told and each.gain]
    covered = [each.told[1] <= each.gain <= each.told[2] for each in slow if each.told and each.gain]
    first, three = (sum(bool(getattr(each, name)) for each in slow) for name in ("first", "among_three"))
    false = sum(len(each.false_causes) for each in results)
    gains = (
        f"median error of {len(errors)} gains {median(errors):.0%}, {sum(covered)} in their interval" if errors else ""
    )
    return (
        f"first: {first} of {len(slow)}, among three: {three}, causes on repaired and clean scripts: {false}. {gains}"
    )


def main() -> None:
    """Run a batch."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("batch", type=Path)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--seconds", type=float, default=9.0)
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    parser.add_argument("--keep", type=Path, help="keep the recordings here")
    arguments = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as place:
        kept = arguments.keep or Path(place)
        for truth in sorted(arguments.batch.glob("*/truth.toml")):
            if arguments.cases and truth.parent.name not in arguments.cases:
                continue
            result = study(truth.parent, arguments.seconds, kept)
            results.append(result)
            mark = {True: "FIRST", False: "three" if result.among_three else "MISSED", None: "clean"}[result.first]
            print(f"{mark:7}{result.case}: {result.cause}", flush=True)
            for title in result.titles:
                print(f"         {title}")
            for cause in result.false_causes:
                print(f"         FALSE: {cause}")
    print(summary(results), f"SHA-256 {fingerprint(arguments.batch)[:16]}")
    if arguments.out:
        arguments.out.write_text(json.dumps([asdict(each) for each in results], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
