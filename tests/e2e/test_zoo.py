"""The zoo, recorded and explained: every planted cause is ranked first, and there are no false alarms."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_exactly_the_planted_causes_are_found():
    found = subprocess.run([sys.executable, "zoo/run.py", "--quick"], cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
