"""Damaged run directories, chosen by a coverage-guided fuzzer: it learns which damages reach new code.

    pip install atheris
    python tests/fuzz/guided.py -max_total_time=600

The bytes that atheris makes choose the run and its damages, by the same functions as in `runs.py`. Each case is loaded,
explained and exported in this process, so that coverage is seen; a case that fails is written to a file by atheris.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).parents[2]))

T = TypeVar("T")
OPTIONS = ("-timeout=60", "-rss_limit_mb=2048", "-len_control=0", "-max_len=512")


class ByteChooser:
    """Makes choices by the bytes of a fuzzer."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider

    def randrange(self, n: int, /) -> int:
        """Return a number from 0 to n - 1."""
        return self._provider.ConsumeIntInRange(0, n - 1)

    def choice(self, options: Sequence[T], /) -> T:
        """Return one of some options."""
        return options[self.randrange(len(options))]


def main() -> int:
    try:
        import atheris  # pyright: ignore[reportMissingImports]
    except ImportError:
        print("guided.py: atheris is not installed: pip install atheris, or use tests/fuzz/runs.py", file=sys.stderr)
        return 2
    with atheris.instrument_imports(include=["hotloop"]):
        from hotloop.errors import HotloopError
        from hotloop.profiling.diagnosis import explain
        from hotloop.profiling.report import json, text, view
        from hotloop.profiling.report.export import FORMATS, export
        from hotloop.profiling.trace.load import load
    from tests.fuzz.damage import damage
    from tests.fuzz.runs import record_runs

    with tempfile.TemporaryDirectory(prefix="hotloop-fuzz-") as place:
        folder = Path(place)
        recorded = record_runs(folder)

        def try_bytes(data: bytes) -> None:
            choose = ByteChooser(atheris.FuzzedDataProvider(data))
            run, out = folder / "damaged", folder / "out"
            for each in (run, out):
                shutil.rmtree(each, ignore_errors=True)
            out.mkdir()
            shutil.copytree(choose.choice(recorded), run)
            for _ in range(1 + choose.randrange(3)):
                damage(run, choose)
            with contextlib.suppress(HotloopError), contextlib.redirect_stderr(io.StringIO()):
                trace = load(run)
                report = view.build(trace, explain(trace))
                text.as_text(report)
                json.dumps(json.detailed(report, trace))
                to = choose.choice(sorted(FORMATS))
                export(trace, to, out / to)

        # In a child: the fuzzer ends its process by itself, and somebody has to remove the folder.
        child = os.fork()
        if child == 0:
            atheris.Setup([sys.argv[0], *OPTIONS, *sys.argv[1:]], try_bytes)
            atheris.Fuzz()
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main())
