"""Keeps the user's source with the run, so that a report quotes what ran even if the file is edited later."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hotloop.json_types import Json
from hotloop.profiling.recorder.privacy.redact_source import redacted_source
from hotloop.profiling.recorder.privacy.redact_text import redacted_text
from hotloop.profiling.trace.source_text import digest_of
from hotloop.profiling.trace.stream_store import write_json

MOST_FILES = 200
MOST_BYTES = 2 << 20
"""Of all files together."""


def write_sources(path: Path, files: Iterable[str]) -> None:
    """Write these files, without the secrets in them, as `sources.json`. Files that are not there are left out."""
    entries: list[Json] = []
    left = MOST_BYTES
    for file in list(files)[:MOST_FILES]:
        text, redacted = redacted_source(file)
        left -= len(redacted)
        if text and left >= 0:
            entries.append({"file": redacted_text(file), "digest": digest_of(text), "lines": redacted.split("\n")})
    if entries:
        write_json(path, {"files": entries}, indent=None)
