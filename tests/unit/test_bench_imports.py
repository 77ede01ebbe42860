"""Each program in bench/ can be imported, and what it imports of hotloop exists: nothing else notices moved names."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
PROGRAMS = sorted(path.relative_to(BENCH).as_posix() for path in BENCH.rglob("*.py"))
IMPORT_ALL = """
import importlib, sys
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name.split(".")[0] in ("hotloop", *sys.argv[2:]):
            raise
        print(f"{name} needs {error.name}")
"""


def imported(program: str) -> Iterator[tuple[str, str]]:
    """Yield each module of hotloop that a program imports, anywhere in it, and the name that it takes from it."""
    for node in ast.walk(ast.parse((BENCH / program).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((each.name, "") for each in node.names if each.name.split(".")[0] == "hotloop")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "hotloop":
            yield from ((node.module or "", each.name) for each in node.names)


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_a_bench_imports_of_hotloop_exists(program):
    for module, name in imported(program):
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError as error:
            assert error.name is not None and not error.name.startswith("hotloop"), f"{program}: {error}"
            continue  # a library that is not installed
        assert not name or hasattr(found, name) or importlib.util.find_spec(f"{module}.{name}"), (
            f"{program} imports {name} of {module}, which has no such name"
        )


def test_benches_can_be_imported():
    """All in one process, since torch takes seconds. A bench whose other libraries are missing is left out."""
    names = [each.removesuffix(".py") for each in PROGRAMS if "/" not in each]
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL, str(BENCH), *names], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) < len(names) / 2, done.stdout
