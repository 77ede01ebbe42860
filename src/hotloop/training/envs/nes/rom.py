"""Which cartridge is played. Our own `runner` ships with the package; any other is the user's, and is checked."""

from __future__ import annotations

import hashlib
from pathlib import Path

from hotloop.errors import HotloopError

RUNNER = Path(__file__).parent / "roms" / "runner.nes"
HEADER_BYTES = 16
MAGIC = b"NES\x1a"

SUPER_MARIO_BROS_SHA1 = "facee9c577a5262dbe33ac4930bb0b58c8c037f7"
"""Of the cartridge's contents (program and tiles, 40,960 bytes, no header), as stable-retro ships it in the `rom.sha`
of its SuperMarioBros-Nes and as public ROM databases list it. Headers differ from dump to dump; contents do not."""

MOST_BYTES = 16 << 20
"""No cartridge is larger."""


def find_rom(path: str | Path | None, known_sha1: str = SUPER_MARIO_BROS_SHA1, unchecked: bool = False) -> Path:
    """Return the file to play: ours if none is named, otherwise the named one if it is the cartridge it should be.

    Args:
        path: A file in iNES format, or None for `runner`.
        known_sha1: Of the contents of the cartridge that is meant.
        unchecked: Take any file in iNES format.
    """
    if path is None:
        return RUNNER
    path = Path(path)
    if path.exists() and not path.is_file():
        raise HotloopError(f"rom {str(path)!r} is not a regular file: give a file in iNES format")
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise HotloopError(
            f"rom {str(path)!r} cannot be read ({reason}): give a file in iNES format; "
            "what was trained with one wants it where it was"
        ) from None
    if len(data) > MOST_BYTES:
        raise HotloopError(f"rom {str(path)!r} has more than {MOST_BYTES:,} bytes: give a file in iNES format")
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
    """Say whether a file is our own game."""
    return path.read_bytes() == RUNNER.read_bytes()
