"""Finds the training loop by where the time goes, in runs in which no environment step was counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from hotloop.profiling.trace.build.columns import of_thread
from hotloop.profiling.trace.loops import Block, loops_around
from hotloop.profiling.trace.model import Frame
from hotloop.profiling.trace.reading.run_files import ProcessParts
from hotloop.profiling.trace.source_text import SourceText

MOSTLY = 0.5
"""The loop is in at least this part of the time of its windows, and of the run after its first one."""


def find_training_loop(main: ProcessParts, sources: Mapping[str, SourceText]) -> tuple[int, int] | None:
    """Return when the loop around most of the run began and ended, in ns; None if there is no such loop.

    It is the outermost loop of the user's code in which most of the main thread's time is spent: imports and set-up
    before it do not belong to training.
    """
    index = main.names.main_thread
    if index is None:
        return None
    samples = of_thread(main.samples, index)
    block_of: dict[int, Block | None] = {}
    by_block: dict[Block, Counter[int]] = {}
    by_window = Counter[int]()
    for window, stack, ns in zip(*(samples[name].tolist() for name in ("window", "stack", "wall_ns")), strict=True):
        if stack not in block_of:
            block_of[stack] = _outermost(main.names.stacks.get(stack, ()), sources)
        by_window[window] += ns
        block = block_of[stack]
        if block is not None:
            by_block.setdefault(block, Counter())[window] += ns
    if not by_block:
        return None
    block = max(by_block, key=lambda each: (by_block[each].total(), each))
    windows = [window for window, ns in by_block[block].items() if ns >= MOSTLY * by_window[window]]
    if not windows:
        return None
    after = sum(ns for window, ns in by_window.items() if window >= min(windows))
    if by_block[block].total() < MOSTLY * after:
        return None
    inside = np.isin(main.memory["window"], windows)
    if not inside.any():
        return None  # a damaged run
    return int(main.memory["start_ns"][inside].min()), int(main.memory["end_ns"][inside].max())


def _outermost(stack: tuple[Frame, ...], sources: Mapping[str, SourceText]) -> Block | None:
    for frame in reversed(stack):
        loops = loops_around(sources.get(frame.file), frame) if frame.own else ()
        if loops:
            return loops[0]
    return None
