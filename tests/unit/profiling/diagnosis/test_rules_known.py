"""Every rule has its page section and its planted case; no section or case is of a rule that is not there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from hotloop.profiling.diagnosis.rules import RULES

ROOT = Path(__file__).parents[4]
NAMES = {rule.__name__.rpartition(".")[2] for rule in RULES}
WITHOUT_A_CASE = {"small_device", "expensive_calls", "double_precision"}
"""The first needs a GPU; the others' cases are among those of zoo/held_out."""


def test_each_rule_stands_once():
    assert len(RULES) == len(NAMES)
    folder = ROOT / "src" / "hotloop" / "profiling" / "diagnosis" / "rules"
    assert {path.stem for path in folder.rglob("*.py")} - {"__init__"} == NAMES


def test_each_rule_has_a_section_with_cause_cure_and_residual():
    page = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert set(sections) >= NAMES
    for name in NAMES:
        for part in ("**Cause.**", "**Seen by.**", "**Cure.**", "**Residual.**"):
            assert part in sections[name], f"{name} has no {part}"


def test_each_rule_has_a_planted_case_with_a_twin():
    planted: set[str] = set()
    for path in (ROOT / "zoo").glob("*/truth.toml"):
        truth = tomllib.loads(path.read_text(encoding="utf-8"))
        if truth["rule"]:
            assert (path.parent / "slow.py").is_file() and (path.parent / "fixed.py").is_file(), path.parent.name
            assert truth["rule"] in NAMES, path.parent.name
            planted |= {truth["rule"], *truth.get("also", ())}
        else:
            assert (path.parent / "clean.py").is_file(), path.parent.name
    assert planted == NAMES - WITHOUT_A_CASE
