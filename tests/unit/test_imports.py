"""`import hotloop` stays light: nothing heavy is loaded before it is used."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ("torch", "numba", "pyarrow", "matplotlib", "scipy", "pandas", "gymnasium")


def modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("statement", ["import hotloop", "from hotloop import span"])
def test_importing_hotloop_loads_nothing_heavy(statement: str) -> None:
    modules = modules_after(statement)
    assert "hotloop" in modules
    assert modules.isdisjoint(HEAVY)


def test_using_a_span_loads_nothing_heavy() -> None:
    modules = modules_after("from hotloop import span\nwith span('env.step'):\n    pass")
    assert modules.isdisjoint(HEAVY)


def test_every_public_name_exists() -> None:
    code = "import hotloop\nfor name in hotloop.__all__: getattr(hotloop, name)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
