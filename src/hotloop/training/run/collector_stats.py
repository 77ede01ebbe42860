"""Statistics of collectors and learner: steps collected and lost, time each side waited, age of the weights.

Steps are counted where they arrive, in replay, and compared with what each collector counts as stored. Waiting is timed
by the side that waits. Rates and shares are those of the current epoch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hotloop.clock import now_ns
from hotloop.json_types import Json
from hotloop.training.run.counts import RECENT
from hotloop.training.state_checks import MOST, count_in, numbers_in, require_state

if TYPE_CHECKING:
    from hotloop.training.collect import Collected, Episode

VERSIONS = 4096
"""Published versions whose number of updates is remembered."""
KEPT = ("epochs", "lost", "gone", "overwritten", "restarts")
"""Counts of a `CollectorStats` that a checkpoint keeps."""


class Totals(NamedTuple):
    """Sums since the beginning, or over a period."""

    steps: float = 0.0
    rows: float = 0.0
    """Transitions used in updates."""
    transport_s: float = 0.0
    ratio_s: float = 0.0
    busy_s: float = 0.0
    ns: float = 0.0

    def since(self, earlier: Totals) -> Totals:
        """Return the difference."""
        return Totals(*(ours - theirs for ours, theirs in zip(self, earlier, strict=True)))

    def rates(self) -> dict[str, float | None]:
        """Return rates and shares over this period; None where nothing happened."""
        seconds, played_s = self.ns / 1e9, self.busy_s + self.ratio_s
        return {
            "experience_per_s": self.steps / seconds if seconds else None,
            "consumption_per_s": self.rows / seconds if seconds else None,
            "wait_transport": self.transport_s / played_s if played_s else None,
            "wait_ratio": self.ratio_s / played_s if played_s else None,
        }


class CollectorStats:
    """Statistics of a training with collectors, whose epochs have this number of episodes."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._recent: deque[tuple[float, float]] = deque(maxlen=RECENT)
        self._published: deque[tuple[int, int]] = deque([(1, 0)], maxlen=VERSIONS)
        self._totals = self._mark = Totals(ns=now_ns())
        self._in_epoch = self.lag_versions = 0
        self.epochs = self.lost = self.gone = self.overwritten = self.restarts = 0
        """Totals: epochs; steps lost after they were stored; steps lost with ended workers; steps overwritten before
        they were ever sampled; workers replaced."""

    def begin(self) -> None:
        """Start the clock of the first epoch. All collectors are ready."""
        self._totals = self._mark = self._totals._replace(ns=now_ns())

    def take(self, got: Collected) -> np.ndarray:
        """Add what was collected; return returns, lengths and distances of the episodes that ended, [3, E]."""
        spent, totals = got.spent, self._totals
        self._totals = totals._replace(
            steps=totals.steps + got.steps,
            transport_s=totals.transport_s + spent.transport_s,
            ratio_s=totals.ratio_s + spent.ratio_s,
            busy_s=totals.busy_s + spent.busy_s,
            ns=now_ns(),
        )
        self.lost += got.lost
        self.gone += got.lost_with_worker
        self.overwritten += got.overwritten
        self.restarts += len(got.restarts)
        self.lag_versions = got.lag
        for each in got.episodes:
            self._recent.append((_figure(each, "distance"), _figure(each, "flag")))
        self._in_epoch += len(got.episodes)
        rows = [(each.returned, each.length, _figure(each, "distance")) for each in got.episodes]
        return np.array(rows, np.float64).reshape(-1, 3).T

    def learnt(self, rows: int) -> None:
        """Count transitions used in updates."""
        self._totals = self._totals._replace(rows=self._totals.rows + rows, ns=now_ns())

    def published(self, version: int, updates: int) -> None:
        """Remember how many updates led to a version of the weights."""
        self._published.append((version, updates))

    def epoch_over(self) -> bool:
        """Return whether all episodes of the epoch have ended."""
        return self._in_epoch >= self._epoch

    def next_epoch(self) -> float:
        """Begin an epoch; return how many seconds the previous one took."""
        took_s = (self._totals.ns - self._mark.ns) / 1e9
        self._in_epoch -= self._epoch
        self.epochs += 1
        self._mark = self._totals
        return took_s

    def weight_lag(self, updates: int) -> int:
        """Return the age, in updates, of the stalest worker's weights."""
        wanted = self._published[-1][0] - self.lag_versions
        known = [then for version, then in self._published if version <= wanted]
        return updates - (known[-1] if known else self._published[0][1])

    def scalars(self, updates: int) -> dict[str, float | None]:
        """Return the statistics after this many updates."""
        recent = np.array(self._recent).mean(0) if self._recent else (None, None)
        return {
            "distance_last100": None if recent[0] is None else float(recent[0]),
            "flag_rate_last100": None if recent[1] is None else float(recent[1]),
            "epochs": float(self.epochs),
            "lost": float(self.lost),
            "gone": float(self.gone),
            "overwritten": float(self.overwritten),
            "restarts": float(self.restarts),
            "weight_lag": float(self.weight_lag(updates)),
            **self._totals.since(self._mark).rates(),
        }

    def state(self) -> dict[str, Json]:
        """Return the state for a checkpoint, as JSON values."""
        recent = [list(each) for each in self._recent]
        return {name: getattr(self, name) for name in KEPT} | {"recent": recent, "in_epoch": self._in_epoch}

    def restore(self, state: Mapping[str, Json], version: int, updates: int) -> None:
        """Continue from a checkpoint, with weights of this version after this many updates."""
        found = state.get("recent")
        recent = found if isinstance(found, list) and len(found) <= RECENT else None
        require_state(recent is not None, f"the recent episodes are not a list of {RECENT}")
        pairs = [numbers_in({"recent": pair}, "recent", 2, low=-MOST) for pair in recent or ()]
        kept = {name: count_in(state, name) for name in (*KEPT, "in_epoch")}
        self._recent.extend((distance, flag) for distance, flag in pairs)
        self._in_epoch = kept.pop("in_epoch")
        for name, value in kept.items():
            setattr(self, name, value)
        self._published.clear()
        self._published.append((version, updates))


def _figure(episode: Episode, name: str) -> float:
    return float(episode.figures.get(name, 0.0))


def status(numbers: dict[str, float | None], took_s: float) -> str:
    """Return the status line of an epoch that took `took_s`, with numbers named as in the curves."""

    def say(name: str, form: str) -> str:
        value = numbers.get(name)
        return "–" if value is None else format(value, form)

    return (
        f"epoch {say('epochs', '.0f')} ({took_s:.1f} s): processed {say('env_steps', ',.0f')} steps, "
        f"batches {say('updates', ',.0f')}, drops {say('lost', '.0f')} "
        f"(overwritten unseen {say('overwritten', '.0f')}, gone with ended workers {say('gone', '.0f')}), "
        f"buffer {say('buffer_fill', '.0%')}, GPU {say('gpu_busy', '.0%')}, "
        f"experience {say('experience_per_s', ',.0f')}/s, consumption {say('consumption_per_s', ',.0f')}/s, "
        f"collectors wait {say('wait_transport', '.1%')} on transport and {say('wait_ratio', '.0%')} for the learner, "
        f"weights {say('weight_lag', '.0f')} updates old, loss {say('loss', '.4f')}, "
        f"TD error {say('td_error', '.3f')}, reward {say('return_last100', '.2f')}, "
        f"distance {say('distance_last100', '.0f')}, flags {say('flag_rate_last100', '.0%')}, ε {say('epsilon', '.3f')}"
    )
