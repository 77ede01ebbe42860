"""`hotloop run script.py` behaves as `python script.py`: exit code, stdout, stderr and files.

These cases were written together with the code; those in test_same_as_python_held_out.py were written by someone who
had not seen it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.same_as_python.harness import FOLDER, Case, differences, find_cases


@pytest.mark.parametrize("case", find_cases(FOLDER / "cases"), ids=lambda case: case.name)
def test_a_recorded_script_behaves_the_same(case: Case, short_path: Path) -> None:
    assert differences(case, short_path) == []
