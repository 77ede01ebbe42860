"""Types of arguments that several subcommands have."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path


def file_ending_in(suffix: str) -> Callable[[str], Path]:
    """Return a reader of names of files to be written: what cannot be is said before anything is played or drawn."""

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
