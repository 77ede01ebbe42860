"""The acting loop of a collector: a policy plays some environments, and every step is written to their lanes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from hotloop.clock import now_ns
from hotloop.spans import span
from hotloop.training.collect.interface import CollectError, Episode, Figure, Job, Policy
from hotloop.training.replay.ring_layout import Ring
from hotloop.training.replay.writers import LaneWriter

if TYPE_CHECKING:
    import gymnasium

ENV_STREAM, POLICY_STREAM = 0xC011, 0xAC7
"""Parts of the seeds that keep the random streams of environments and policies apart."""


class Player:
    """Some environments, the policy that plays them, and the lanes they are written to.

    `life` is the number of earlier starts: each uses other seeds. `beat`, the heartbeat, is called before anything that
    may take long.
    """

    def __init__(
        self, job: Job, ring: Ring, lanes: range, life: int = 0, beat: Callable[[], object] = lambda: None
    ) -> None:
        self._job, self._lanes, self._beat = job, lanes, beat
        self._total_lanes = ring.shape.lanes
        self._writers = [LaneWriter(ring, lane) for lane in lanes]
        self._rng = np.random.default_rng([job.seed, POLICY_STREAM, lanes.start, life])
        self.version = 0
        self.rounds = 0
        """Steps made by each environment."""
        self.act_ns = self.env_ns = self.store_ns = self.weights_ns = 0
        self._returned, self._length = [0.0] * len(lanes), [0] * len(lanes)
        self._act_span, self._env_span, self._store_span = span("act"), span("env.step"), span("replay.store")
        self._envs: list[gymnasium.Env[np.ndarray, np.ndarray | int]] = []
        try:
            self._begin(ring.layout.item_shape, life)
        except BaseException:
            self.close()
            raise

    def _begin(self, shape: tuple[int, ...], life: int) -> None:
        self._policy: Policy = self._job.policy.build()
        for lane, writer in zip(self._lanes, self._writers, strict=True):
            self._beat()
            env = self._job.env.build()
            self._envs.append(env)
            self._beat()
            seed = np.random.SeedSequence([self._job.seed, ENV_STREAM, lane, life]).generate_state(1)[0]
            frame = np.asarray(env.reset(seed=int(seed))[0])
            if frame.shape != shape or frame.dtype != np.uint8:
                raise CollectError(
                    f"{self._job.env.factory} gives {frame.dtype} {list(frame.shape)} where the replay keeps uint8 "
                    f"{list(shape)}: make the replay for its frames, or the environment give single uint8 frames"
                )
            writer.begin(frame)

    @property
    def fragment(self) -> int:
        """The most steps of an environment that are published at once."""
        return self._writers[0].fragment

    @property
    def unpublished(self) -> int:
        """Steps that were made but are not in replay yet."""
        return sum(writer.unpublished for writer in self._writers)

    def load(self, weights: Mapping[str, np.ndarray], version: int) -> None:
        """Load new weights into the policy."""
        begin = now_ns()
        with span("weights.load"):
            self._policy.load(weights, version)
        self.version = version
        self.weights_ns += now_ns() - begin

    def step(self) -> list[Episode]:
        """Make one step in every environment; return the episodes that ended."""
        begin = now_ns()
        self._beat()
        writers = self._writers
        # With one environment the stack is used in place, without a copy.
        stacks = writers[0].stack[None] if len(writers) == 1 else np.stack([each.stack for each in writers])
        with self._act_span:
            actions = self._policy.act(stacks, self.rounds * self._total_lanes, self._rng)
        self.act_ns += now_ns() - begin
        self.rounds += 1
        ended: list[Episode] = []
        for e, env in enumerate(self._envs):
            begin = now_ns()
            with self._env_span:
                frame, reward, terminated, truncated, info = env.step(actions[e])
            stepped = now_ns()
            with self._store_span:
                writers[e].step(actions[e], reward, terminated, truncated, frame)
            self.env_ns += stepped - begin
            self.store_ns += now_ns() - stepped
            self._returned[e] += float(reward)
            self._length[e] += 1
            if terminated or truncated:
                ended.append(self._end(e, info))
        return ended

    def flush(self) -> None:
        """Publish all steps that were made."""
        begin = now_ns()
        for writer in self._writers:
            writer.flush()
        self.store_ns += now_ns() - begin

    def _end(self, e: int, info: Mapping[str, Figure | np.generic | np.ndarray]) -> Episode:
        episode = Episode(
            self._lanes[e], self._returned[e], self._length[e], plain_figures(info, self._job.figures), self.version
        )
        self._returned[e], self._length[e] = 0.0, 0
        self._beat()
        begin = now_ns()
        with span("env.reset"):
            frame = self._envs[e].reset()[0]
        self.env_ns += now_ns() - begin
        self._writers[e].begin(frame)
        return episode

    def close(self) -> None:
        """Close the environments."""
        while self._envs:
            self._envs.pop().close()


def plain_figures(
    info: Mapping[str, Figure | np.generic | np.ndarray], wanted: tuple[str, ...] = ()
) -> dict[str, Figure]:
    """Return the entries of an `info` that are numbers, strings or booleans, as plain Python types."""
    found = {}
    for name in wanted or info:
        value = info.get(name)
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, bool | int | float | str):
            found[name] = value
    return found
