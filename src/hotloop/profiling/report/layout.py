"""Headings and paths, the same in all sections of the terminal report."""

from __future__ import annotations

import os

from rich.rule import Rule
from rich.text import Text

SHORT = 24
"""Characters of a file and line in a table."""


def heading(title: str, detail: str = "") -> Rule:
    """Return the heading of a section."""
    text = Text.assemble((title, "bold"), (f"  {detail}" if detail else "", "dim"))
    return Rule(text, align="left", style="dim", characters="─")


def place(file: str, line: int) -> str:
    """Return a file and line, short: relative to the current directory if that is short, or the file's name alone."""
    found = f"{near(file)}:{line}"
    return found if near(file) != file and len(found) <= SHORT else f"{os.path.basename(file)}:{line}"


def near(file: str) -> str:
    """Return a path relative to the current directory if it is below it, so that terminals make it clickable."""
    return file.removeprefix(os.getcwd() + os.sep)
