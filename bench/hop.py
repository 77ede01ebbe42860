"""For `bench/collectors.py`: the cost of moving one fragment into the replay, and the memory of a whole replay."""

from __future__ import annotations

import numpy as np
from measure import Row, against_limit, estimate, exactly, interleave, ratio_of, say

from hotloop.training.replay import FrameReplay, Prioritised
from hotloop.training.replay.step_counter import StepCounter
from hotloop.training.replay.writers import LaneWriter

COLLECTORS, SIDE, STACK = 2, 84, 4
CAPACITY = 8_000
MOST_HOP, MOST_ROOM_GB = 1.5, 7.2


def measure_hop(rounds: int) -> Row:
    """Compare publishing a full fragment in the replay with copying the same bytes."""
    replay = FrameReplay(CAPACITY, 1, (SIDE, SIDE), STACK, storage="shared")
    plain = FrameReplay(CAPACITY, 1, (SIDE, SIDE), STACK, storage="shared").ring.block.arrays["frames"]
    writer = LaneWriter(replay.ring, 0)
    frame = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE), np.uint8)
    writer.begin(frame)
    for _ in range(CAPACITY):  # so that all pages are allocated
        writer.step(0, 0.0, False, False, frame)
    plain[:] = 1
    count, source = writer.fragment, np.ascontiguousarray(writer._recent[: writer.fragment]).reshape(-1, SIDE * SIDE)
    place = [0]

    def hop() -> None:
        writer._unpublished, writer._newest = count, count + STACK
        writer.flush()

    def copy() -> None:
        at = place[0]
        plain[at : at + count] = source
        place[0] = (at + count) % (CAPACITY - count)

    times = interleave({"hop": hop, "copy": copy}, rounds, calls=20)
    found = estimate(ratio_of, times["hop"], times["copy"])
    say(f"collectors: a hop takes {np.median(times['hop']) / 1e3:.1f} µs, a copy {np.median(times['copy']) / 1e3:.1f}")
    return against_limit(f"hop of {count} steps of {SIDE}×{SIDE}, in copies of its bytes", found, MOST_HOP, "×")


def measure_room() -> Row:
    """Memory of a million transitions of four frames, including priorities and metadata."""
    replay = FrameReplay(1_000_000, COLLECTORS, (SIDE, SIDE), STACK, prioritised=Prioritised())
    size = (replay.nbytes + StepCounter(replay.ring).nbytes) / 1e9
    return against_limit(f"1,000,000 transitions of {STACK}×{SIDE}×{SIDE}", exactly(size), MOST_ROOM_GB, "GB")
