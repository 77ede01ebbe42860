"""Finds the cartridge to play. Our own `runner` ships with the package; the user's own file is verified."""

from __future__ import annotations

import hashlib
from pathlib import Path

from hotloop.errors import HotloopError

RUNNER = Path(__file__).parent / "roms" / "runner.nes"
HEADER_BYTES = 16
MAGIC = b"NES\x1a"

SUPER_MARIO_BROS_SHA1 = "facee9c577a5262dbe33ac4930bb0b58c8c037f7"
"""SHA-1 of the cartridge's contents (program and tiles, 40,960 bytes, without the header, which differs between dumps).
It is the one in stable-retro's `rom.sha` for SuperMarioBros-Nes and in public ROM databases."""

MAX_BYTES = 16 << 20
"""No cartridge is larger."""


def find_rom(path: str | Path | None, known_sha1: str = SUPER_MARIO_BROS_SHA1, unchecked: bool = False) -> Path:
    """Return the file to play: `runner` without a path, otherwise the given file if it is the expected cartridge.

    If `unchecked`, any file in iNES format is accepted.
    """
    if path is None:
        return RUNNER
    path = Path(path)
    if path.exists() and not path.is_file():
        raise HotloopError(f"rom {str(path)!r} is not a regular file: give a file in iNES format")
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise HotloopError(
            f"rom {str(path)!r} cannot be read ({reason}): give a file in iNES format; "
            "an agent trained with a rom needs it at the same path"
        ) from None
    if len(data) > MAX_BYTES:
        raise HotloopError(f"rom {str(path)!r} has more than {MAX_BYTES:,} bytes: give a file in iNES format")
    if data[:4] != MAGIC or len(data) <= HEADER_BYTES:
        raise HotloopError(f"rom {str(path)!r} is not in iNES format: it begins with {data[:4]!r}, not with {MAGIC!r}")
    found = hashlib.sha1(data[HEADER_BYTES:]).hexdigest()
    ours = hashlib.sha1(RUNNER.read_bytes()[HEADER_BYTES:]).hexdigest()
    if not unchecked and found not in (known_sha1, ours):
        raise HotloopError(
            f"rom {str(path)!r} is another cartridge: its contents have SHA-1 {found}, not {known_sha1}; "
            "to play it all the same, give --rom-unchecked (in Python rom_unchecked=True)"
        )
    return path


def is_runner(path: Path) -> bool:
    """Return whether a file is our own game."""
    return path.read_bytes() == RUNNER.read_bytes()
