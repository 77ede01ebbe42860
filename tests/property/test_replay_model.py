"""Replays sample exactly the transitions of a list-based model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba")

from hotloop.training.replay import FrameReplay, Prioritised, ReplayError, VectorReplay

GAMMA = 0.9
compiled = settings(max_examples=60, deadline=None)


@dataclass
class Step:
    """One step of one environment: observations are unique numbers."""

    obs: int
    next_obs: int
    reward: float
    terminated: bool
    truncated: bool
    seen: list[int] = field(default_factory=list)
    """The observations of the episode so far, this one last."""

    @property
    def ended(self) -> bool:
        return self.terminated or self.truncated


@dataclass
class Model:
    """All steps of all environments, in lists."""

    lanes: list[list[Step]]
    fresh: list[bool]
    numbers: int = 0

    def vector_step(self, rng: np.random.Generator) -> list[Step]:
        """Step every environment once."""
        for lane, before in enumerate(self.lanes):
            if self.fresh[lane]:
                obs, seen = self._number(), []
            else:
                obs, seen = before[-1].next_obs, before[-1].seen
            ends = [bool(each) for each in rng.random(2) < 0.15]
            before.append(Step(obs, self._number(), float(rng.integers(-5, 6)), ends[0], ends[1], [*seen, obs]))
            self.fresh[lane] = before[-1].ended
        return [steps[-1] for steps in self.lanes]

    def cut(self) -> None:
        """Abandon all running episodes."""
        self.fresh = [True] * len(self.fresh)

    def _number(self) -> int:
        self.numbers += 1
        return self.numbers

    def n_steps(self, lane: int, at: int, n: int) -> list[Step]:
        """The n steps from this one on, or fewer if its episode ends or was cut off."""
        taken = [self.lanes[lane][at]]
        while not taken[-1].ended and len(taken) < n and at + len(taken) < len(self.lanes[lane]):
            following = self.lanes[lane][at + len(taken)]
            if following.obs != taken[-1].next_obs:
                break
            taken.append(following)
        return taken


def expected(steps: list[Step]) -> tuple[float, float]:
    """Return and discount."""
    total = sum(GAMMA**k * step.reward for k, step in enumerate(steps))
    return total, 0.0 if steps[-1].terminated else GAMMA ** len(steps)


@st.composite
def histories(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "envs": draw(st.integers(1, 3)),
        "length": draw(st.integers(12, 20)),
        "n": draw(st.integers(1, 4)),
        "stack": draw(st.integers(1, 4)),
        "steps": draw(st.integers(0, 45)),
        "cuts": draw(st.sets(st.integers(0, 44), max_size=3)),
        "seed": draw(st.integers(0, 2**32)),
        "prioritised": draw(st.sampled_from([None, Prioritised()])),
        "zero": draw(st.booleans()),
    }


def fill(replay: Any, history: dict[str, Any], as_obs: Any) -> Model:
    model = Model([[] for _ in range(history["envs"])], [True] * history["envs"])
    rng = np.random.default_rng(history["seed"])
    for k in range(history["steps"]):
        if k in history["cuts"]:
            model.cut()
            replay.cut()
        steps = model.vector_step(rng)
        replay.add(
            np.stack([as_obs(step.obs) for step in steps]),
            np.array([step.obs * 3 for step in steps]),
            np.array([step.reward for step in steps], np.float32),
            np.array([step.terminated for step in steps]),
            np.array([step.truncated for step in steps]),
            np.stack([as_obs(step.next_obs) for step in steps]),
        )
        if k % 5 == 0:
            draw_all(replay, k, rounds=1)  # so that priorities are updated in several steps
    return model


def draw_all(replay: Any, seed: int, rounds: int = 25) -> list[tuple[Any, ...]]:
    """Sample until every transition was drawn (a miss has probability e^-25); return each once."""
    held, rng, found = len(replay), np.random.default_rng(seed), {}
    for _ in range(rounds if held else 0):
        try:
            batch = replay.sample(held, rng)
        except ReplayError:
            break  # there are steps but no complete transition: the caller checks that none was expected
        for i, index in enumerate(batch.index.tolist()):
            if index not in found:
                found[index] = tuple(each[i].copy() for each in batch)
    return list(found.values())


def vector_obs(number: int) -> np.ndarray:
    return np.array([number, -number, 0.5 * number], np.float32)


@compiled
@given(histories())
def test_vector_replay(history: dict[str, Any]) -> None:
    n, length = history["n"], history["length"]
    replay = VectorReplay(
        length * history["envs"], history["envs"], (3,), n_step=n, gamma=GAMMA, prioritised=history["prioritised"]
    )
    model = fill(replay, history, vector_obs)
    possible = set()
    for lane, steps in enumerate(model.lanes):
        for at in range(max(0, len(steps) - length), len(steps) - n + 1):
            taken = model.n_steps(lane, at, n)
            if len(taken) == n or taken[-1].ended:
                possible.add((lane, at))
    sampled = set()
    for obs, action, reward, next_obs, discount, index, weight in draw_all(replay, history["seed"]):
        at, lane = divmod(int(index), history["envs"])
        sampled.add((lane, at))
        taken = model.n_steps(lane, at, n)
        np.testing.assert_array_equal(obs, vector_obs(taken[0].obs))
        np.testing.assert_array_equal(next_obs, vector_obs(taken[-1].next_obs))
        assert action == taken[0].obs * 3
        assert (reward, discount) == pytest.approx(expected(taken), rel=1e-6)
        assert weight == 1
    assert sampled == possible


def frame_obs(number: int) -> np.ndarray:
    return np.array([[number % 256, number // 256, 7]], np.uint8)


def stacked(seen: list[int], stack: int, zero: bool) -> np.ndarray:
    first = np.zeros_like(frame_obs(0)) if zero else frame_obs(seen[0])
    frames = [first] * stack + [frame_obs(each) for each in seen]
    return np.stack(frames[-stack:])


@compiled
@given(histories())
def test_frame_replay(history: dict[str, Any]) -> None:
    n, stack, length = history["n"], history["stack"], history["length"]
    replay = FrameReplay(
        length * history["envs"],
        history["envs"],
        (1, 3),
        stack,
        padding="zero" if history["zero"] else "repeat",
        n_step=n,
        gamma=GAMMA,
        prioritised=history["prioritised"],
    )
    model = fill(replay, history, frame_obs)
    slots: list[list[int | None]] = []
    for steps in model.lanes:
        slots.append([])
        for at, step in enumerate(steps):
            slots[-1] += [at, None] if step.ended else [at]
    possible = set()
    for lane, lane_slots in enumerate(slots):
        oldest = len(lane_slots) - length
        for slot in range(oldest + stack - 1 if oldest > 0 else 0, len(lane_slots) - n):
            at = lane_slots[slot]
            if at is None:
                continue
            # The next frame of a cut-off step was never stored.
            taken = model.n_steps(lane, at, n + 1)
            if any(step.ended for step in taken[:n]) or len(taken) == n + 1:
                possible.add((lane, slot))
    sampled = set()
    for obs, action, reward, next_obs, discount, index, weight in draw_all(replay, history["seed"]):
        slot, lane = divmod(int(index), history["envs"])
        sampled.add((lane, slot))
        at = slots[lane][slot]
        assert at is not None
        taken = model.n_steps(lane, at, n)
        np.testing.assert_array_equal(obs, stacked(taken[0].seen, stack, history["zero"]))
        seen_next = [*taken[-1].seen, taken[-1].next_obs]
        np.testing.assert_array_equal(next_obs, stacked(seen_next, stack, history["zero"]))
        assert action == taken[0].obs * 3
        assert (reward, discount) == pytest.approx(expected(taken), rel=1e-6)
        assert weight == 1
    assert sampled == possible


@compiled
@given(histories())
def test_a_restored_replay_continues_identically(history: dict[str, Any]) -> None:
    def make() -> FrameReplay:
        return FrameReplay(
            history["length"] * history["envs"],
            history["envs"],
            (1, 3),
            history["stack"],
            n_step=history["n"],
            prioritised=history["prioritised"],
        )

    first = make()
    fill(first, history, frame_obs)
    rng = np.random.default_rng(1)
    if draw_all(first, 1):
        batch = first.sample(len(first), rng)
        first.update_priorities(batch.index, np.linspace(0, 4, len(first), dtype=np.float32))
    second = make()
    second.restore(first.state())
    later = history | {"seed": history["seed"] + 1, "cuts": set(), "steps": 9}
    fill(first, later, frame_obs)
    fill(second, later, frame_obs)
    ours, theirs = draw_all(first, 3), draw_all(second, 3)
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)
