"""Limits for reading a run directory.

A run may come from anyone, so reading it must end, in bounded memory, whatever its files contain. The recorder has
lower limits of its own (nodes per thread, stacks per process, bytes of single calls).
"""

from __future__ import annotations

LARGEST = 1 << 56
"""Nanoseconds (two years), bytes and counts: no single number is larger."""
LARGEST_SUM = 1 << 61
"""Sum of a column: two of them can still be added in 64 bits."""
LARGEST_UNIX_NS = 1 << 62
"""The year 2116."""

JSON_BYTES = 16 << 20
"""Of one JSON file."""
JSON_DEPTH = 32
LINE_BYTES = 1 << 20
"""Of one line of names."""
NAMES_BYTES = 64 << 20
STREAM_BYTES = 64 << 20
"""Of one Arrow file, as it is on the disk."""
TABLE_BYTES = 128 << 20
"""Of one table, uncompressed."""
TABLE_ROWS = 1 << 21
BATCHES = 1 << 16
RUN_BYTES = 384 << 20
"""Of all files of a run together, uncompressed."""

TEXT = 2_000
"""Characters of a name, path or source line."""
PROCESSES = 2_048
THREADS = 4_096
NODES = 5_000
"""Of a thread: as many as the recorder keeps."""
DEPTH = 1_000
"""Of a call tree."""
STACKS = 20_000
FRAMES = 200_000
STACK_FRAMES = 64
WINDOWS = 1 << 13
"""A run of a year has 5,300, because windows get longer during a run."""
COUNTERS = 1_024
SPANS = 5_000
WORK = 1 << 26
"""Total steps up the call tree for the phases over time: about half a minute."""
ROWS = 50_000
"""Of a list in a JSON file."""
