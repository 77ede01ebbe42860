"""A million spans on disk and in `explain`; ten million in the memory of the process and of its recorder.

The spans come at 40,000 a second, so that all are timed but for the blocks that calibrate; ten million also as fast as
Python can make them, which no training loop does: then most are only counted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from measure import Row, against_limit, exactly, main, recorder_process, say, spread

from hotloop.clock import now_ns
from hotloop.profiling.diagnosis import explain
from hotloop.profiling.recorder.record_options import RecordOptions
from hotloop.profiling.recorder.session import record
from hotloop.profiling.trace.load import load
from hotloop.profiling.trace.reading.run_files import read_table
from hotloop.spans import count, span
from hotloop.spans.registry import recording

ALL_TIMED = RecordOptions(budget=1.0)
HOTLOOP = Path(sys.executable).with_name("hotloop")
INNER = ("env.step", "replay.push", "replay.sample", "net.forward", "loss.backward", "optimiser.step", "log.write")
SPANS_AN_ITERATION = 2 + len(INNER)
PER_S = 40_000
LATE_NS = 5_000_000
LEAST_TIMED = 0.8
"""In about a sixth of the blocks the recorder times nothing, so as to see what timing costs."""
MB = 1e6


def run(quick: bool) -> list[Row]:
    """Measure everything this bench shows."""
    million = 100_000 if quick else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        say(f"scale: {million:,} spans on disk")
        with record(path, options=ALL_TIMED):
            loop(million, PER_S)
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        must_be_timed(path, million, quick)
        say("scale: explain")
        command = spread([explain_command(path) for _ in range(2 if quick else 7)])
        inside = spread([explain_inside(path) for _ in range(2 if quick else 7)])
        say(f"scale: {10 * million:,} spans in memory")
        grown = memory_growth(Path(folder), 10 * million, RecordOptions(), 0)
        all_timed = memory_growth(Path(folder), 10 * million, ALL_TIMED, PER_S)
        must_be_timed(Path(folder) / f"long-{ALL_TIMED.budget}", 10 * million, quick)
    text = f"{million:,} spans"
    return [
        against_limit(f"{text}: run directory", exactly(size / MB), 20.0, "MB"),
        against_limit(f"{text}: hotloop explain --json, start of Python included", command, 2.0, "s"),
        against_limit(f"{text}: load and explain alone", inside, 2.0, "s"),
        against_limit(
            f"{10 * million:,} spans at full speed: highest growth of memory", exactly(grown / MB), 20.0, "MB"
        ),
        against_limit(
            f"{10 * million:,} spans, each timed: highest growth of memory", exactly(all_timed / MB), 20.0, "MB"
        ),
    ]


def must_be_timed(path: Path, spans: int, quick: bool) -> None:
    """Fail unless the spans of a run were timed, but for the blocks that calibrate. A quick trial need not succeed."""
    timed = sum(int(read_table(each.parent, "spans", True)[0]["timed"].sum()) for each in path.glob("*/process.json"))
    say(f"  {timed:,} spans were timed")
    if timed < LEAST_TIMED * spans and not quick:
        raise RuntimeError(
            f"only {timed:,} of {spans:,} spans were timed: this machine is too slow for {PER_S:,} a second"
        )


def loop(spans: int, per_s: int = 0) -> None:
    """Make so many spans, in the shape of a training loop; at a pace, or as fast as can be.

    What the machine kept it waiting for is not caught up with: a training loop does not run faster after a pause.
    """
    iteration, update = span("iteration"), span("update")
    inner = [span(name) for name in INNER]
    pause_ns = SPANS_AN_ITERATION * 1e9 / per_s if per_s else 0.0
    due = float(now_ns())
    for _ in range(spans // SPANS_AN_ITERATION):
        while per_s and now_ns() < due:
            time.sleep(0.001)
        due = max(due, now_ns() - LATE_NS) + pause_ns
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


def memory_growth(folder: Path, spans: int, options: RecordOptions, per_s: int) -> int:
    """Bytes by which the process and its recorder grow while so many spans are recorded.

    The highest of a hundred readings. What they share counts for the process only.
    """
    process = psutil.Process()
    with record(folder / f"warm-{options.budget}", options=options):
        loop(20_000)
    before, highest = process.memory_info().rss, 0
    with record(folder / f"long-{options.budget}", options=options):
        recorder = recorder_process()
        before += recorder.memory_full_info().uss
        for _ in range(100):
            loop(spans // 100, per_s)
            highest = max(highest, process.memory_info().rss + recorder.memory_full_info().uss)
        if not recording():
            raise RuntimeError("the recorder stopped in the middle of the bench: its warning above says why")
    return highest - before


if __name__ == "__main__":
    main(run, __doc__)
