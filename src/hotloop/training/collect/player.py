"""Plays some environments by a policy and writes what happens into their stripes: the same loop in every process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hotloop.clock import now_ns
from hotloop.spans import span
from hotloop.training.collect.interface import CollectError, Episode, Figure, Job, Policy
from hotloop.training.replay.lane_writer import Stripe
from hotloop.training.replay.ring import Ring

PLAYING, ACTING = 0xC011, 0xAC7
"""Enter the seeds of environments and of policies, which then have nothing in common."""


class Player:
    """Environments, the policy that plays them, and the stripes they are written into.

    Args:
        job: What is played, by whom.
        ring: Of the replay.
        lanes: Its lanes that are written here: one environment each.
        life: How often this has been begun before; other lives have other seeds.
        beat: Called before everything that may take long.
    """

    def __init__(
        self, job: Job, ring: Ring, lanes: range, life: int = 0, beat: Callable[[], object] = lambda: None
    ) -> None:
        self._job, self._lanes, self._beat = job, lanes, beat
        self._others = ring.shape.stripes
        self._stripes = [Stripe(ring, lane, job.padding == "repeat") for lane in lanes]
        self._rng = np.random.default_rng([job.seed, ACTING, lanes.start, life])
        self.version = 0
        self.rounds = 0
        """Steps of each environment."""
        self.act_ns = self.env_ns = self.store_ns = self.weights_ns = 0
        self._returned, self._length = [0.0] * len(lanes), [0] * len(lanes)
        self._act_span, self._env_span, self._store_span = span("act"), span("env.step"), span("replay.store")
        self._envs: list[Any] = []
        try:
            self._begin(ring.lanes.item_shape, life)
        except BaseException:
            self.close()
            raise

    def _begin(self, shape: tuple[int, ...], life: int) -> None:
        self._policy: Policy = self._job.policy.build()
        for lane, stripe in zip(self._lanes, self._stripes, strict=True):
            self._beat()
            env = self._job.env.build()
            self._envs.append(env)
            self._beat()
            seed = np.random.SeedSequence([self._job.seed, PLAYING, lane, life]).generate_state(1)[0]
            frame = np.asarray(env.reset(seed=int(seed))[0])
            if frame.shape != shape or frame.dtype != np.uint8:
                raise CollectError(
                    f"{self._job.env.factory} gives {frame.dtype} {list(frame.shape)} where the replay keeps uint8 "
                    f"{list(shape)}: make the replay for its frames, or the environment give single uint8 frames"
                )
            stripe.begin(frame)

    @property
    def fragment(self) -> int:
        """Steps of an environment that are published together, at most."""
        return self._stripes[0].fragment

    @property
    def waiting(self) -> int:
        """Steps that are played and not published."""
        return sum(stripe.waiting for stripe in self._stripes)

    def load(self, weights: Mapping[str, np.ndarray], version: int) -> None:
        """Let the policy take new weights over."""
        begin = now_ns()
        with span("weights.load"):
            self._policy.load(weights, version)
        self.version = version
        self.weights_ns += now_ns() - begin

    def step(self) -> list[Episode]:
        """Play one step of every environment; return the episodes that ended."""
        begin = now_ns()
        self._beat()
        stripes = self._stripes
        # One environment's stack is looked at where it is; several are put together.
        seen = stripes[0].seen[None] if len(stripes) == 1 else np.stack([each.seen for each in stripes])
        with self._act_span:
            actions = self._policy.act(seen, self.rounds * self._others, self._rng)
        self.act_ns += now_ns() - begin
        self.rounds += 1
        ended: list[Episode] = []
        for e, env in enumerate(self._envs):
            begin = now_ns()
            with self._env_span:
                frame, reward, terminated, truncated, info = env.step(actions[e])
            played = now_ns()
            with self._store_span:
                stripes[e].step(actions[e], reward, terminated, truncated, frame)
            self.env_ns += played - begin
            self.store_ns += now_ns() - played
            self._returned[e] += float(reward)
            self._length[e] += 1
            if terminated or truncated:
                ended.append(self._end(e, info))
        return ended

    def flush(self) -> None:
        """Publish every step that was made."""
        begin = now_ns()
        for stripe in self._stripes:
            stripe.flush()
        self.store_ns += now_ns() - begin

    def _end(self, e: int, info: Mapping[str, Any]) -> Episode:
        told = Episode(
            self._lanes[e], self._returned[e], self._length[e], plain_figures(info, self._job.figures), self.version
        )
        self._returned[e], self._length[e] = 0.0, 0
        self._beat()
        begin = now_ns()
        with span("env.reset"):
            frame = self._envs[e].reset()[0]
        self.env_ns += now_ns() - begin
        self._stripes[e].begin(frame)
        return told

    def close(self) -> None:
        """Close the environments."""
        while self._envs:
            self._envs.pop().close()


def plain_figures(info: Mapping[str, Any], wanted: tuple[str, ...] = ()) -> dict[str, Figure]:
    """Return those entries of an `info` that are a number, a word, or true or false, as Python's own types."""
    found = {}
    for name in wanted or info:
        value = info.get(name)
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, bool | int | float | str):
            found[name] = value
    return found
