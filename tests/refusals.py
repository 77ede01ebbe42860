"""Calls an invalid command in this process: a new process would spend seconds importing torch first."""

from __future__ import annotations

import pytest

from hotloop.cli.main import main


def refusal(capsys: pytest.CaptureFixture[str], *words: object) -> list[str]:
    """Call a command that must exit with code 2; return the lines that it writes to stderr."""
    capsys.readouterr()
    try:
        code = main([str(word) for word in words])
    except SystemExit as end:  # argparse
        code = end.code
    lines = capsys.readouterr().err.splitlines()
    assert code == 2, lines
    return lines
