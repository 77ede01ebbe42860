"""What ten spans cost in a real update of about a millisecond, beside other ways to time a block of code.

The update is the same in all variants and runs on one thread. hotloop records while all of them run, with its
sampler and its writer; what these cost by themselves is measured apart, by recording and not recording in turn.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from measure import (
    LIMIT,
    Row,
    Times,
    against_limit,
    estimate,
    exactly,
    extra_of,
    interleave,
    main,
    ratio_of,
    say,
)
from opentelemetry.sdk.trace import TracerProvider
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from hotloop import record, span
from hotloop.clock import now_ns
from hotloop.record.account import Account
from hotloop.record.fold import codes_of
from hotloop.record.options import RecordOptions
from hotloop.spans import COUNTER_BASE, Span, is_live, known_spans

SPANS = 10
NAMES = tuple(f"part{i}" for i in range(SPANS))
BATCH = 64
NO_THINNING = RecordOptions(budget=1.0)
PEERS = ("record_function, profiler off", "OpenTelemetry", "psutil per span")
MS, US = 1e6, 1e3
TimeBlock = Callable[[str], AbstractContextManager[object]]
Update = Callable[[], object]


def make_update(timed: TimeBlock | None) -> Update:
    """Return one gradient update of a small Q-network, with ten timed blocks in it or with none."""
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4))
    target = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4))
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-4)
    store, picks = torch.randn(4096, 64), torch.randint(0, 4096, (BATCH,))
    actions, rewards = torch.randint(0, 4, (BATCH, 1)), torch.randn(BATCH, 1)
    seen: dict[str, Any] = {}

    def gather() -> None:
        seen["now"], seen["next"] = store[picks], store[picks - 1]

    def bootstrap() -> None:
        with torch.no_grad():
            seen["goal"] = rewards + 0.99 * target(seen["next"]).amax(1, keepdim=True)

    def forward() -> None:
        seen["value"] = net(seen["now"]).gather(1, actions)

    def loss() -> None:
        seen["loss"] = nn.functional.smooth_l1_loss(seen["value"], seen["goal"])

    def clear() -> None:
        optimiser.zero_grad(set_to_none=True)

    def backward() -> None:
        seen["loss"].backward()

    def clip() -> None:
        nn.utils.clip_grad_norm_(net.parameters(), 10.0)

    def step() -> None:
        optimiser.step()

    def track() -> None:
        seen["error"] = (seen["value"] - seen["goal"]).detach().abs().mean()

    def follow() -> None:
        with torch.no_grad():
            target[0].weight.lerp_(net[0].weight, 0.005)

    parts = (gather, bootstrap, forward, loss, clear, backward, clip, step, track, follow)
    return partial(_plain, parts) if timed is None else partial(_timed, tuple(zip(NAMES, parts, strict=True)), timed)


def _plain(parts: tuple[Callable[[], None], ...]) -> None:
    for part in parts:
        part()


def _timed(parts: tuple[tuple[str, Callable[[], None]], ...], timed: TimeBlock) -> None:
    for name, part in parts:
        with timed(name):
            part()


def no_block(name: str) -> AbstractContextManager[object]:
    """A block that does nothing: what the `with` statement itself costs is charged to nobody."""
    return NOTHING


NOTHING = contextlib.nullcontext()


class StudyProfiler:
    """A profiler as the study of one describes it: wall-clock time and resident memory at both ends of a block."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._lock = threading.Lock()
        self._found: dict[str, list[tuple[float, int]]] = {}

    @contextlib.contextmanager
    def block(self, name: str) -> Any:
        """Time a block."""
        begin, memory = time.time(), self._process.memory_info().rss
        try:
            yield
        finally:
            took, grown = time.time() - begin, self._process.memory_info().rss - memory
            with self._lock:
                self._found.setdefault(name, []).append((took, grown))


def in_place(quick: bool) -> list[Row]:
    """Spans of hotloop and of its peers in the update, all while hotloop records."""
    tracer = TracerProvider().get_tracer("bench")
    variants = {
        "plain": make_update(None),
        "with": make_update(no_block),
        "hotloop": make_update(span),
        PEERS[0]: make_update(record_function),
        PEERS[1]: make_update(tracer.start_as_current_span),
        PEERS[2]: make_update(StudyProfiler().block),
    }
    rounds = 20 if quick else 800
    idle = _extra(interleave(variants | {}, rounds // 4, 4), "hotloop")
    ours = [span(name) for name in NAMES]
    with tempfile.TemporaryDirectory() as folder, record(Path(folder) / "run", options=NO_THINNING):
        times = interleave(variants, rounds, 4, after_block=lambda name: all(map(is_live, ours)))
    live = _extra(times, "hotloop")
    base = times["plain"]
    rows = [against_limit("a span in place", estimate(lambda t, p: extra_of(t, p) / SPANS / US, times["hotloop"], base), 1.8, "µs")]
    asked = {PEERS[0]: 10.0, PEERS[2]: 35.0}
    for name in PEERS:
        rows.append(_beside("a span in place", times["hotloop"], times[name], base, name, asked.get(name, 0.0)))
    say(f"  update {np.median(base) / MS:.2f} ms; the with statements alone {_extra(times, 'with'):.2f} µs a block")
    rows.append(Row("a span, nothing recording", idle, live, "hotloop recording", "µs", live / idle, live / idle, live / idle))
    return rows
