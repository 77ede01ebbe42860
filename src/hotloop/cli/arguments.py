"""Types of arguments that several subcommands have."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path


def whole_number(value: str, least: int = 1) -> int:
    """Read an integer."""
    if not value.isdecimal() or int(value) < least:
        raise argparse.ArgumentTypeError(f"must be a whole number from {least} on, not {value!r}")
    return int(value)


def file_ending_in(suffix: str) -> Callable[[str], Path]:
    """Return a reader of output file names. It rejects a wrong suffix or folder before any work is done."""

    def read(value: str) -> Path:
        path = Path(value)
        if path.suffix.lower() != suffix:
            raise argparse.ArgumentTypeError(f"must be a file name that ends in {suffix}, not {value!r}")
        if not path.parent.is_dir():
            raise argparse.ArgumentTypeError(
                f"cannot write {value}: make the folder {path.parent} first, or choose another"
            )
        return path

    return read
