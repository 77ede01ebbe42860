"""The zoo, recorded and explained: every planted cause is found first, and nothing is found that is not there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_planted_cause_is_found_and_nothing_else():
    found = subprocess.run([sys.executable, "zoo/run.py", "--quick"], cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
