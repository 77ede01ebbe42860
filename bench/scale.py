"""A million spans on disk and in `explain`; ten million in the recorder's memory.

The spans follow each other as fast as Python can make them: no training loop asks as much of the recorder.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
from measure import Row, against_limit, exactly, main, say, spread

from hotloop.clock import now_ns
from hotloop.explain import explain
from hotloop.record.options import RecordOptions
from hotloop.record.session import record
from hotloop.spans import count, recording, span
from hotloop.trace.load import load

ALL_TIMED = RecordOptions(budget=1.0)
HOTLOOP = Path(sys.executable).with_name("hotloop")
INNER = ("env.step", "replay.push", "replay.sample", "net.forward", "loss.backward", "optimiser.step", "log.write")
SPANS_AN_ITERATION = 2 + len(INNER)
MB = 1e6


def run(quick: bool) -> list[Row]:
    """Measure everything this bench shows."""
    million = 100_000 if quick else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        say(f"scale: {million:,} spans on disk")
        with record(path, options=ALL_TIMED):
            loop(million)
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        kept = sum(node.calls for node in load(path).thread.nodes if node.kind == "span")
        say(f"  {kept:,} of them are in the run")
        say("scale: explain")
        command = spread([explain_command(path) for _ in range(2 if quick else 7)])
        inside = spread([explain_inside(path) for _ in range(2 if quick else 7)])
        say(f"scale: {10 * million:,} spans in memory")
        grown = memory_growth(Path(folder), 10 * million, RecordOptions())
        all_timed = memory_growth(Path(folder), 10 * million, ALL_TIMED)
    text = f"{million:,} spans"
    return [
        against_limit(f"{text}: run directory", exactly(size / MB), 20.0, "MB"),
        against_limit(f"{text}: hotloop explain --json, start of Python included", command, 2.0, "s"),
        against_limit(f"{text}: load and explain alone", inside, 2.0, "s"),
        against_limit(f"{10 * million:,} spans: highest growth of memory", exactly(grown / MB), 20.0, "MB"),
        against_limit(
            f"{10 * million:,} spans, each timed: highest growth of memory", exactly(all_timed / MB), 20.0, "MB"
        ),
    ]


def loop(spans: int) -> None:
    """Make so many spans, in the shape of a training loop."""
    iteration, update = span("iteration"), span("update")
    inner = [span(name) for name in INNER]
    for _ in range(spans // SPANS_AN_ITERATION):
        with iteration:
            with inner[0]:
                count("env_steps")
            with inner[1]:
                pass
            with update:
                for each in inner[2:]:
                    with each:
                        pass


def explain_command(path: Path) -> float:
    """Seconds that the whole command takes."""
    begin = now_ns()
    done = subprocess.run([HOTLOOP, "explain", path, "--json"], check=True, capture_output=True, text=True)
    took = (now_ns() - begin) / 1e9
    json.loads(done.stdout)
    return took


def explain_inside(path: Path) -> float:
    """Seconds that reading and explaining take once everything is imported."""
    begin = now_ns()
    explain(load(path))
    return (now_ns() - begin) / 1e9


def memory_growth(folder: Path, spans: int, options: RecordOptions) -> int:
    """Bytes by which the process grows while so many spans are recorded, at the highest of a hundred readings."""
    process = psutil.Process()
    with record(folder / f"warm-{options.budget}", options=options):
        loop(20_000)
    before = process.memory_info().rss
    highest = before
    with record(folder / f"long-{options.budget}", options=options):
        for _ in range(100):
            loop(spans // 100)
            highest = max(highest, process.memory_info().rss)
        if not recording():
            raise RuntimeError("the recorder stopped in the middle of the bench: its warning above says why")
    return highest - before


if __name__ == "__main__":
    main(run, __doc__)
