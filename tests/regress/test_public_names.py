"""`hotloop.record` and `hotloop.explain` are functions and packages at once, and can be called either way."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "first",
    ["import hotloop.record.session", "import hotloop.explain.finding", "hotloop.record, hotloop.explain"],
)
def test_importing_a_part_of_the_package_leaves_the_function_callable(first, tmp_path):
    """Under `hotloop run` the packages are imported before the script, which then could not call them."""
    code = (
        f"import hotloop\n{first}\n"
        "with hotloop.record('out'):\n    sum(range(10**6))\n"
        "print(len(hotloop.explain(hotloop.load('out'))))\n"
        "from hotloop.record.session import record\nfrom hotloop.explain import explain\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "0"
