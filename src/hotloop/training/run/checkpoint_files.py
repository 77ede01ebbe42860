"""The files of one checkpoint: `checkpoint.json`, and one `<group>.safetensors` for each group of arrays.

The JSON holds a SHA-256 of each array file and one of its own content, so damage to any of them is detected. A digest
does not make a file trustworthy: an attacker can compute it too. So only regular files with plain names are read, and
the JSON is limited in size, depth and the size of its numbers.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import psutil

from hotloop.errors import HotloopError
from hotloop.files import UnfitFile, open_regular
from hotloop.json_types import Json

if TYPE_CHECKING:
    from hashlib import _Hash

FORMAT = 2
UNSIGNED_FORMAT = 1
"""Checkpoints of this format have no digest of their JSON. They are still read."""
META = "checkpoint.json"
SUFFIX = ".safetensors"
GROUP_FILE = re.compile(rf"[A-Za-z0-9_-]{{1,64}}{re.escape(SUFFIX)}")
DIGEST = re.compile(r"[0-9a-f]{64}")
MOST_META_BYTES = 16 << 20
DEEPEST = 16
MOST_BITS = 128
"""Bits of an integer: the state of a random generator has this many."""
CHUNK_BYTES = 8 << 20
ALIGN = 8
DTYPES = {"BOOL": np.dtype(np.bool_)} | {
    f"{kind}{8 * size}": np.dtype(f"{kind.lower()}{size}")
    for kind, sizes in (("U", (1, 2, 4, 8)), ("I", (1, 2, 4, 8)), ("F", (2, 4, 8)))
    for size in sizes
}
"""Dtypes by their names in the safetensors format, such as U8 and F32."""
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
MOST_DIMENSIONS = 32
LENGTH_BYTES = 8
"""Size of the length of the header, at the start of a safetensors file."""

Arrays = Mapping[str, np.ndarray]
Groups = Mapping[str, Arrays]


class CheckpointUnreadable(HotloopError):
    """There is no checkpoint, it is damaged, or another version or pipeline wrote it."""


def write_files(folder: Path, groups: Groups, meta: Mapping[str, Json]) -> None:
    """Write all files of a checkpoint into an empty directory and flush them to the disk."""
    digests = {f"{name}{SUFFIX}": _write_arrays(folder / f"{name}{SUFFIX}", each) for name, each in groups.items()}
    outer = {"format": FORMAT, "digests": digests, "meta": dict(meta)}
    with (folder / META).open("xb") as stream:
        stream.write(json.dumps(outer | {"digest": _digest_of(outer)}, indent=1, allow_nan=False).encode())
        _flush(stream)
    flush_directory(folder)


def read_description(folder: Path) -> tuple[dict[str, str], Mapping[str, Json]]:
    """Return the digests of the array files by name, and the JSON values of the run."""
    file = folder / META
    if not file.exists():
        raise CheckpointUnreadable(f"{folder} is not a checkpoint (it has no {META}): name one of checkpoints/*")
    with _open(file) as stream:
        raw = stream.read(MOST_META_BYTES + 1)
    try:
        outer = _parse(raw)
        written, _, _ = outer["format"], outer["digests"], outer["meta"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else error
        raise CheckpointUnreadable(f"{file} is damaged ({reason}): use another checkpoint") from error
    if written not in (UNSIGNED_FORMAT, FORMAT) or isinstance(written, bool):
        raise CheckpointUnreadable(f"{folder} has format {written!r}, this hotloop reads {FORMAT}: upgrade hotloop")
    return _check_outer(file, outer)


def read_arrays(file: Path, digest: str) -> dict[str, np.ndarray]:
    """Return the arrays of a file by name. The file must have this digest."""
    with _open(file) as stream:
        size, most = os.fstat(stream.fileno()).st_size, psutil.virtual_memory().total
        if size > most:
            raise CheckpointUnreadable(f"{file} has {size:,} bytes, more than this machine's memory: use another one")
        if hashlib.file_digest(stream, "sha256").hexdigest() != digest:
            raise CheckpointUnreadable(f"{file} is damaged or missing: use another checkpoint of {file.parent.parent}")
        try:
            return _map_arrays(stream, size)
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            reason = f"no {error}" if isinstance(error, KeyError) else error
            raise CheckpointUnreadable(f"{file} cannot be read ({reason}): use another checkpoint") from error


def _map_arrays(stream: BinaryIO, size: int) -> dict[str, np.ndarray]:
    """Return the arrays of an open safetensors file. They are writable; this does not change the file.

    They are mapped, not loaded: an array takes memory only when it is read, after its shape was checked.
    """
    stream.seek(0)
    length = int.from_bytes(stream.read(LENGTH_BYTES), "little")
    if size < LENGTH_BYTES or length > min(MOST_META_BYTES, size - LENGTH_BYTES):
        raise ValueError(f"its header has {length:,} bytes")
    header: dict[str, Any] = _parse(stream.read(length))
    header.pop("__metadata__", None)
    begin = LENGTH_BYTES + length
    data = np.memmap(stream, np.uint8, "c").view(np.ndarray)[begin:]
    found, end = {}, 0
    for name, entry in sorted(header.items(), key=lambda each: tuple(each[1]["data_offsets"])):
        dtype, shape, (first, last) = DTYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
        counts = (first, last, *shape)
        if len(counts) > MOST_DIMENSIONS or not all(type(each) is int and 0 <= each <= size for each in counts):
            raise ValueError(f"the shape or place of {name!r}")
        if first != end or last - first != math.prod(shape) * dtype.itemsize or last > len(data):
            raise ValueError(f"{name!r} does not lie where its shape says")
        if (begin + first) % dtype.itemsize:
            raise ValueError(f"{name!r} is not aligned")
        found[name], end = data[first:last].view(dtype).reshape(shape), last
    if end != len(data):
        raise ValueError(f"{len(data) - end:,} bytes belong to no array")
    return found


def flush_directory(path: Path) -> None:
    """Flush the entries of a directory to the disk, so that a rename survives a crash."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _check_outer(file: Path, outer: dict[str, Json]) -> tuple[dict[str, str], Mapping[str, Json]]:
    """Return digests and meta. Check the digest of the JSON, and that it names only files in the same folder."""
    digests, meta = outer["digests"], outer["meta"]
    body = {name: value for name, value in outer.items() if name != "digest"}
    signed = outer["format"] != UNSIGNED_FORMAT or "digest" in outer
    if signed and outer.get("digest") != _digest_of(body):
        raise CheckpointUnreadable(f"{file} is damaged (its digest does not match): use another checkpoint")
    if not isinstance(digests, dict) or not isinstance(meta, dict):
        raise CheckpointUnreadable(f"{file} is damaged (digests and meta must be objects): use another checkpoint")
    found: dict[str, str] = {}
    for name, digest in digests.items():
        if not GROUP_FILE.fullmatch(name) or not isinstance(digest, str) or not DIGEST.fullmatch(digest):
            raise CheckpointUnreadable(f"{file} is damaged (wrong file or digest {name!r}): use another checkpoint")
        found[name] = digest
    return found, meta


def _parse(raw: bytes) -> dict[str, Json]:
    if len(raw) > MOST_META_BYTES:
        raise ValueError(f"more than {MOST_META_BYTES:,} bytes")
    outer = json.loads(raw.decode("utf-8"))
    _check_values(outer, 0)
    if not isinstance(outer, dict):
        raise TypeError("it is not an object")
    return outer


def _check_values(value: Json, depth: int) -> None:
    """Reject values that no checkpoint has and that later code does not expect."""
    if depth > DEEPEST:
        raise ValueError(f"nested more than {DEEPEST} deep")
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            _check_values(each, depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"the number {value}")
    elif isinstance(value, int) and value.bit_length() > MOST_BITS:
        raise ValueError(f"a number of more than {MOST_BITS} bits")


def _digest_of(outer: Mapping[str, Json]) -> str:
    """Return the SHA-256 of JSON values, independent of their formatting."""
    text = json.dumps(outer, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _write_arrays(file: Path, arrays: Arrays) -> str:
    """Write arrays in the safetensors format; return the SHA-256 of the file.

    The safetensors library would copy all arrays first, hide the system's error number, and set another file mode.
    """
    ordered = sorted(((key, np.asarray(each)) for key, each in arrays.items()), key=lambda e: (-e[1].itemsize, e[0]))
    header, begin = {}, 0
    for key, array in ordered:
        end = begin + array.nbytes
        header[key] = {"dtype": DTYPE_NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [begin, end]}
        begin = end
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % ALIGN)
    digest = hashlib.sha256()
    with file.open("xb") as stream:
        _append(stream, digest, len(head).to_bytes(LENGTH_BYTES, "little") + head)
        for _, array in ordered:
            # A non-contiguous array is copied row by row: it may be a replay of gigabytes.
            for part in [array] if array.flags.c_contiguous else array:
                plain = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
                for first in range(0, len(plain), CHUNK_BYTES):
                    # A copy, because workers keep writing into a shared replay, and the digest must match the file.
                    _append(stream, digest, plain[first : first + CHUNK_BYTES].tobytes())
        _flush(stream)
    return digest.hexdigest()


def _append(stream: BinaryIO, digest: _Hash, data: bytes) -> None:
    digest.update(data)
    stream.write(data)


def _flush(stream: BinaryIO) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def _open(file: Path) -> BufferedReader:
    """Open a regular file. A link could lead out of the checkpoint, and opening a pipe would block."""
    try:
        return os.fdopen(open_regular(file), "rb")
    except UnfitFile as error:
        raise CheckpointUnreadable(f"{file} is damaged ({error}): use another checkpoint") from error
    except OSError as error:
        raise CheckpointUnreadable(
            f"{file} is damaged or missing ({error.strerror or error}): use another checkpoint"
        ) from error
