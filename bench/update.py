"""The update that the span bench times: a small Q-network's, about a millisecond on one thread, in ten parts.

Also a profiler as the study of one describes it, to stand beside ours.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import psutil
import torch
from torch import nn

BATCH, INPUTS, ACTIONS, KEPT = 64, 64, 4, 4096
TimeBlock = Callable[[str], AbstractContextManager[object]]


def make_update(timed: TimeBlock | None) -> Callable[[], None]:
    """Return one gradient update, with each of its ten parts in a block of `timed`, or with no blocks."""
    torch.manual_seed(1)
    state = _state()
    parts = [(name, partial(part, state)) for name, part in PARTS.items()]

    def plain() -> None:
        for _, part in parts:
            part()

    def in_blocks() -> None:
        for name, part in parts:
            with timed(name):  # type: ignore[misc]
                part()

    return plain if timed is None else in_blocks


def _network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(INPUTS, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, ACTIONS))


def _state() -> dict[str, Any]:
    net = _network()
    return {
        "net": net,
        "target": _network(),
        "optimiser": torch.optim.Adam(net.parameters(), lr=1e-4),
        "store": torch.randn(KEPT, INPUTS),
        "actions": torch.randint(0, ACTIONS, (BATCH, 1)),
        "rewards": torch.randn(BATCH, 1),
    }


def _gather(s: dict[str, Any]) -> None:
    picks = torch.randint(0, KEPT, (BATCH,))
    s["now"], s["next"] = s["store"][picks], s["store"][picks - 1]


def _bootstrap(s: dict[str, Any]) -> None:
    with torch.no_grad():
        s["goal"] = s["rewards"] + 0.99 * s["target"](s["next"]).amax(1, keepdim=True)


def _forward(s: dict[str, Any]) -> None:
    s["value"] = s["net"](s["now"]).gather(1, s["actions"])


def _loss(s: dict[str, Any]) -> None:
    s["loss"] = nn.functional.smooth_l1_loss(s["value"], s["goal"])


def _clear(s: dict[str, Any]) -> None:
    s["optimiser"].zero_grad(set_to_none=True)


def _backward(s: dict[str, Any]) -> None:
    s["loss"].backward()


def _clip(s: dict[str, Any]) -> None:
    nn.utils.clip_grad_norm_(s["net"].parameters(), 10.0)


def _step(s: dict[str, Any]) -> None:
    s["optimiser"].step()


def _track(s: dict[str, Any]) -> None:
    s["error"] = (s["value"] - s["goal"]).detach().abs().mean()


def _follow(s: dict[str, Any]) -> None:
    with torch.no_grad():
        for slow, fast in zip(s["target"].parameters(), s["net"].parameters(), strict=True):
            slow.lerp_(fast, 0.005)


PARTS: dict[str, Callable[[dict[str, Any]], None]] = {
    "gather": _gather, "bootstrap": _bootstrap, "forward": _forward, "loss": _loss, "clear": _clear,
    "backward": _backward, "clip": _clip, "step": _step, "track": _track, "follow": _follow,
}  # fmt: skip


class StudyProfiler:
    """Wall-clock time and resident memory at both ends of a block, kept in a dictionary under a lock."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._lock = threading.Lock()
        self._found: dict[str, list[tuple[float, int]]] = {}

    @contextlib.contextmanager
    def block(self, name: str) -> Iterator[None]:
        """Time a block."""
        begin, memory = time.time(), self._process.memory_info().rss
        try:
            yield
        finally:
            took, grown = time.time() - begin, self._process.memory_info().rss - memory
            with self._lock:
                self._found.setdefault(name, []).append((took, grown))
