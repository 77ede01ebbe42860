"""Open the files of a run safely: regular files only, never more bytes than a limit, never waiting for a writer."""

from __future__ import annotations

from pathlib import Path

from hotloop.files import UnfitFile, read_regular
from hotloop.profiling.trace.reading import limits


class Malformed(Exception):
    """A file is not as hotloop writes it. The message says what is wrong, without the file's name."""


class Budget:
    """Bytes of a run that may still be read, and work that may still be done on them."""

    def __init__(self, left: int = limits.RUN_BYTES) -> None:
        self.left = left
        self.work = limits.WORK

    def take(self, size: int) -> None:
        """Use up bytes.

        Raises:
            Malformed: Fewer bytes are left.
        """
        if size > self.left:
            raise Malformed(f"the run is larger than the {limits.RUN_BYTES >> 20} MiB that hotloop reads")
        self.left -= size

    def take_work(self, steps: int) -> bool:
        """Use up steps of work if enough are left; return whether they were."""
        if steps > self.work:
            return False
        self.work -= steps
        return True


def read_bytes(path: Path, limit: int, folder: int | None = None) -> bytes | None:
    """Return a file's content, None if there is no such file. The path may be relative to a folder's descriptor.

    A pipe would block and a device has no end, so neither is opened.

    Raises:
        Malformed: It is not a regular file, has more bytes than the limit, or cannot be read.
    """
    try:
        return read_regular(path, limit, folder=folder, follow=True)
    except FileNotFoundError:
        return None
    except UnfitFile as error:
        raise Malformed(str(error)) from error
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        raise Malformed(f"it cannot be read ({getattr(error, 'strerror', None) or error})") from error
