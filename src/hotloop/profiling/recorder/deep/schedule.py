"""Runs deep profiling on a loop: `--functions`, `--ops` and the layers of `--modules`.

The first two trace some iterations each, after a warm-up; meanwhile nothing else is recorded (`pause`). An iteration
ends when environment steps are counted, because that works in every kind of script. Therefore this replaces the
function that counts. Results are written at once, so that a run that is killed later has them.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hotloop.clock import now_ns
from hotloop.counters import COUNTERS
from hotloop.json_types import Json
from hotloop.notice import notice
from hotloop.profiling.recorder.deep import functions, layers
from hotloop.profiling.recorder.deep.operators import Operators
from hotloop.profiling.recorder.deep.pause import Pause
from hotloop.profiling.recorder.hooks import environments as envs
from hotloop.profiling.recorder.record_options import RecordOptions
from hotloop.profiling.recorder.writer import write_cleared
from hotloop.spans import hot_path
from hotloop.spans import registry as spans

if TYPE_CHECKING:
    from hotloop.profiling.recorder.hooks.state import HookState
    from hotloop.profiling.recorder.session import Recorder

SCHEMA = 1
WARMUP = 100
"""Iterations before tracing starts, unless --warmup is given. Tracing also waits for the first update."""
PATIENCE_NS = 30_000_000_000
"""How long to wait for that update, counted from the first step."""
WRITE_NS = 2_000_000_000
"""Shortest time between two writes of the layers' sums."""


class DeepSample(Protocol):
    """Traces some iterations."""

    def begin(self) -> None:
        """Start tracing. Nothing else may happen before the loop continues."""
        ...

    def step(self) -> None:
        """Handle the end of an iteration."""
        ...

    def end(self) -> dict[str, Json]:
        """Stop tracing; return the results."""
        ...


class Functions:
    """Traces all function calls of the thread."""

    def __init__(self) -> None:
        self._tracer = functions.Tracer(functions.describe)
        self._costs = functions.costs_here()

    def begin(self) -> None:
        """Start tracing, below the calls that are open now."""
        if sys.getprofile() is not None:
            raise RuntimeError("another profiler was at work by then")
        self._began = functions.open_calls(sys._getframe(1))
        self._tracer.start(self._began)

    def step(self) -> None:
        """Do nothing."""

    def end(self) -> dict[str, Json]:
        """Stop; return functions and call tree."""
        current = sys.getprofile()
        self._tracer.stop()
        if current is not self._tracer and not isinstance(getattr(current, "__self__", None), functions.Tracer):
            # Another profiler has replaced ours in the meantime.
            sys.setprofile(current)
        return functions.collect(self._tracer, self._began, self._costs)


class Tracing:
    """Waits for the warm-up, takes the deep samples one after the other, and counts updates for the layers."""

    def __init__(self, recorder: Recorder, folder: Path, options: RecordOptions, timed: layers.Layers | None) -> None:
        self._folder = folder
        self._options = options
        self._warmup = WARMUP if options.warmup is None else options.warmup
        self._pause = Pause(recorder)
        self._layers = timed
        self._note = hot_path.note
        self._counters = {spans.counter_code(name): name for name in COUNTERS}
        samples: tuple[tuple[str, int, Callable[[], DeepSample]], ...] = (
            ("functions", options.functions, Functions),
            ("operators", options.ops, Operators),
        )
        self._waiting = [(name, n, make) for name, n, make in samples if n]
        self._sample: DeepSample | None = None
        self._name, self._wanted = "", 0
        self._thread = self._iterations = self._first_ns = 0
        self._updates = self._written_ns = 0
        self._seen: dict[str, int] = dict.fromkeys(("iterations", *COUNTERS), 0)
        for name, n, _ in self._waiting:
            self._write(name, {"state": "waiting", "asked": n})

    def install(self) -> None:
        """Start following the counters."""
        for module in (spans, envs):
            setattr(module, "note", self._noting)  # noqa: B010
        _current.append(self)

    def remove(self) -> None:
        """Stop following the counters, and end the deep sample that is running."""
        if self in _current:
            _current.remove(self)
        self._finish()
        self.ignore()
        if self._layers is not None:
            self._write("layers", self._layers.content())
            self._layers = None
        for name, n, _ in self._waiting:
            self._write(name, {"state": "none", "asked": n, "reason": self._why_none()})
            notice(f"{_FLAGS[name]} saw nothing: {self._why_none()}")
        self._waiting = []

    def ignore(self) -> None:
        """Stop following the counters and timing layers."""
        if self._layers is not None:
            self._layers.on = False
        for module in (spans, envs):
            if module.note == self._noting:
                setattr(module, "note", self._note)  # noqa: B010

    def _noting(self, code: int, amount: int) -> None:
        name = self._counters.get(code)
        if self._sample is None:
            self._note(code, amount)
        elif name is not None:
            # The recorder is paused. `trace` adds these counts to the recorded ones.
            self._seen[name] += amount
        if name == "updates":
            self._updated(amount)
        elif name == "env_steps":
            self._stepped()

    def _updated(self, amount: int) -> None:
        self._updates += amount
        timed = self._layers
        if timed is not None and self._sample is None:
            timed.on_update()
            if now_ns() - self._written_ns >= WRITE_NS:
                self._written_ns = now_ns()
                self._write("layers", timed.content())

    def _stepped(self) -> None:
        """Handle the end of an iteration. Only the steps of the thread that stepped first count."""
        ident = threading.get_ident()
        if ident != self._thread:
            if self._thread:
                return
            self._thread, self._first_ns = ident, now_ns()
        self._iterations += 1
        if self._sample is None:
            if self._waiting and self._warm():
                self._begin()
            return
        self._seen["iterations"] += 1
        if self._seen["iterations"] >= self._wanted:
            self._finish()
        else:
            self._sample.step()

    def _warm(self) -> bool:
        if self._iterations < self._warmup or not self._pause.possible:
            return False
        learns = self._options.warmup is not None or self._updates > 0 or "torch" not in sys.modules
        return learns or now_ns() - self._first_ns >= PATIENCE_NS

    def _begin(self) -> None:
        name, wanted, make = self._waiting.pop(0)
        self._seen = dict.fromkeys(self._seen, 0)
        self._name, self._wanted = name, wanted
        if self._layers is not None:
            self._layers.on = False
        self._pause.begin()
        try:
            self._write(name, {"state": "looking", "asked": wanted})
            self._sample = make()
            self._sample.begin()
        except Exception as error:
            self._sample = None
            self._pause.end()
            self._write(name, {"state": "none", "asked": wanted, "reason": str(error)})
            notice(f"{_FLAGS[name]} saw nothing: {error}")

    def _finish(self) -> None:
        """End the deep sample that is running, if there is one."""
        sample, self._sample = self._sample, None
        if sample is None:
            return
        try:
            seen = sample.end()
            state = "done" if self._seen["iterations"] >= self._wanted else "cut"
            warmup = self._iterations - self._seen["iterations"]
            self._write(self._name, {"state": state, "asked": self._wanted, "warmup": warmup} | self._seen | seen)
        except Exception as error:
            failed = {"state": "none", "asked": self._wanted, "reason": f"it failed: {error!r}"}
            self._write(self._name, failed | self._seen)
            notice(f"lost what {_FLAGS[self._name]} saw: {error!r}. Training goes on.")
        finally:
            self._pause.end()

    def _why_none(self) -> str:
        if not self._thread:
            return "no environment step was counted in the main process"
        if self._iterations < self._warmup:
            return (
                f"the run ended after {self._iterations} of the {self._warmup} iterations of warm-up; "
                "give a smaller --warmup, or let it run for longer"
            )
        if self._updates:
            return "the run ended, or its recording did, before it was looked at; let it run for longer"
        return "the run ended before its first update; give --warmup N to begin after N iterations whatever happens"

    def _write(self, name: str, content: dict[str, Json]) -> None:
        try:
            write_cleared(self._folder / f"{name}.json", {"schema": SCHEMA} | content)
        except OSError as error:
            notice(f"cannot write {name}.json ({error}): training goes on.")


_FLAGS = {"functions": "--functions", "operators": "--ops", "layers": "--modules"}
_current: list[Tracing] = []
_following_forks = False


def prepare(state: HookState, options: RecordOptions) -> None:
    """Configure hooks for deep samples, before they are installed."""
    # Steps counted in C would not be observed.
    state.calls_are_seen = True
    if state.depth and options.modules_every:
        state.layers = layers.Layers(state.depth, options.modules_every)


def follow(
    recorder: Recorder, folder: Path, options: RecordOptions, state: HookState | None = None
) -> Callable[[], None]:
    """Take the deep samples of these options; return a function that ends them."""
    global _following_forks
    if not _following_forks and hasattr(os, "register_at_fork"):
        # A fork waits for a lock that is held during a pause, so end the pause first.
        os.register_at_fork(before=_before_fork, after_in_child=_in_child)
        _following_forks = True
    tracing = Tracing(recorder, folder, options, state.layers if state is not None else None)
    tracing.install()
    return tracing.remove


def _before_fork() -> None:
    for each in _current:
        each._finish()


def _in_child() -> None:
    for each in _current:
        each.ignore()
    _current.clear()
