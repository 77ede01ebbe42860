"""What a collector is asked for and what it tells, and the descriptions from which a process builds its part.

Everything that a collector is told can be sent to another process, or to another machine: environments and policies
as recipes, weights as named arrays. What comes back is steps in replay, and figures.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np

from hotloop.errors import HotloopError

Figure = float | int | bool | str
Weights = Mapping[str, Any]
"""Arrays by name: NumPy's, or torch tensors."""


class CollectError(HotloopError):
    """A collector was made in a way that cannot be, or cannot go on."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to build something in any process: a callable's place, and keyword arguments that can be pickled."""

    factory: str
    """`package.module:name`."""
    options: Mapping[str, Any] = field(default_factory=dict)

    def find(self) -> Any:
        """Return the callable."""
        module, _, name = self.factory.partition(":")
        if not module or not name:
            raise CollectError(f"factory is {self.factory!r}: give module:name, such as hotloop.envs.nes:MarioEnv")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise CollectError(f"factory {self.factory!r} was not found ({error}): give module:name") from None

    def build(self) -> Any:
        """Build it."""
        return self.find()(**self.options)


class Policy(Protocol):
    """Who chooses actions, in the process that plays."""

    def load(self, weights: Mapping[str, np.ndarray], version: int) -> None:
        """Take new weights over; the arrays are changed after this returns."""
        ...

    def act(self, seen: np.ndarray, steps: int, rng: np.random.Generator) -> np.ndarray:
        """Choose an action for each of E environments.

        Args:
            seen: uint8 [E, stack, *frame_shape], the newest frame last; changed after this returns.
            steps: How many steps all environments have made so far, about: for a share of random actions that falls.
            rng: Where chance comes from.

        Returns:
            [E, *action_shape], of the type that replay keeps.
        """
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """What is played, by whom."""

    env: Recipe
    """A Gymnasium environment of single uint8 frames."""
    policy: Recipe
    """A `Policy`."""
    seed: int = 0
    frames_per_step: int = 1
    """Frames that the game advances in a step."""
    figures: tuple[str, ...] = ()
    """What of the last `info` of an episode is told; if empty, all that is a number, a word, or true or false."""

    def __post_init__(self) -> None:
        if self.frames_per_step < 1:
            raise CollectError(f"frames_per_step is {self.frames_per_step}: give 1 or more")


@dataclass(frozen=True, slots=True)
class Episode:
    """An episode that ended."""

    lane: int
    """The environment, as replay numbers them."""
    returned: float
    """Sum of rewards."""
    length: int
    """Steps."""
    figures: Mapping[str, Figure]
    """Of the environment's last `info`, such as `flag` and `distance`."""
    version: int = 0
    """Of the weights with which it ended."""


@dataclass(frozen=True, slots=True)
class Restart:
    """A worker that was replaced."""

    worker: int
    reason: str


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of those who play, added up over all of them."""

    act_s: float = 0.0
    env_s: float = 0.0
    """Steps and resets."""
    store_s: float = 0.0
    """Writing into replay."""
    weights_s: float = 0.0
    """Taking new weights over."""
    told_s: float = 0.0
    """Telling what happened."""
    ratio_s: float = 0.0
    """Waiting for the learner, to keep the ratio of updates to steps."""

    @property
    def transport_s(self) -> float:
        """All that experience and weights took on their way: writing, reading, telling, and waiting for any of it."""
        return self.store_s + self.weights_s + self.told_s

    @property
    def busy_s(self) -> float:
        """All but waiting for the learner."""
        return self.act_s + self.env_s + self.transport_s

    def __sub__(self, earlier: Spent) -> Spent:
        return Spent(*(getattr(self, each.name) - getattr(earlier, each.name) for each in fields(self)))


@dataclass(frozen=True, slots=True)
class Collected:
    """What happened since the last call."""

    steps: int
    """In replay now that were not then: often more than asked for, where workers run ahead."""
    frames: int
    """That the game advanced meanwhile."""
    episodes: tuple[Episode, ...]
    seconds: float
    """Of this call, all of which somebody who learns has waited."""
    spent: Spent
    overwritten: int = 0
    """Steps that were overwritten before they were ever sampled; right if `sampled` is told what was."""
    lost: int = 0
    """Steps that those who play have stored by their own count and that never came into replay: 0."""
    gone: int = 0
    """Steps that workers which ended had made and not yet stored."""
    restarts: tuple[Restart, ...] = ()
    lag: int = 0
    """Published versions that the one who lags most is behind the newest."""


class Collector(Protocol):
    """Who brings experience into a replay."""

    def get_ready(self) -> None:
        """Start who plays, and wait until all can: `collect` would do it else. After `restore`, if there is one."""
        ...

    def collect(self, steps: int) -> Collected:
        """Go on until so many more steps are in replay than all calls before have asked for."""
        ...

    def publish(self, weights: Weights) -> int:
        """Hand out new weights, of the same names and shapes as ever; return their version, 1 and up."""
        ...

    def sampled(self, index: np.ndarray) -> None:
        """Take note of what was sampled (`Batch.index`), for counting what never was."""
        ...

    def state(self) -> dict[str, Any]:
        """Return what JSON can hold and a checkpoint needs. Environments are not in it: new episodes begin."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint, after the replay was restored: counts and seeds, with new episodes."""
        ...

    def close(self) -> None:
        """End everything. A second call does nothing."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


def as_arrays(weights: Weights) -> dict[str, np.ndarray]:
    """Return weights as NumPy arrays, of torch tensors without a copy where that can be."""
    return {
        name: np.asarray(each.detach().cpu() if hasattr(each, "detach") else each) for name, each in weights.items()
    }
