"""The interface of collectors: what they are given, what they return, and the methods they have.

Everything given to a collector can be sent to another process or machine: environments and policies as recipes,
weights as named arrays. Steps come back through the replay, and statistics as `Collected`.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

import numpy as np

from hotloop.errors import HotloopError
from hotloop.json_types import Json

if TYPE_CHECKING:
    import torch

Figure = float | int | bool | str
Weights: TypeAlias = "Mapping[str, np.ndarray | torch.Tensor]"
"""Arrays or tensors by name."""


class CollectError(HotloopError):
    """A collector got invalid arguments, or cannot continue."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to build an object in any process: the location of a callable, and picklable keyword arguments."""

    factory: str
    """`package.module:name`."""
    options: Mapping[str, Any] = field(default_factory=dict)

    def find(self) -> Callable[..., Any]:
        """Import and return the callable."""
        module, _, name = self.factory.partition(":")
        if not module or not name:
            raise CollectError(f"factory is {self.factory!r}: give module:name, such as hotloop.envs.nes:MarioEnv")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise CollectError(f"factory {self.factory!r} was not found ({error}): give module:name") from None

    def build(self) -> Any:
        """Call it with the options."""
        return self.find()(**self.options)


class Policy(Protocol):
    """Chooses actions, in the process that runs the environments."""

    def load(self, weights: Mapping[str, np.ndarray], version: int) -> None:
        """Load new weights. Copy what you keep: the arrays are overwritten later."""

    def act(self, seen: np.ndarray, steps: int, rng: np.random.Generator) -> np.ndarray:
        """Choose actions [E, *action_shape], of the dtype that the replay stores, for E environments.

        Args:
            seen: Frame stacks, uint8 [E, stack, *frame_shape], newest frame last; overwritten later.
            steps: Approximate number of steps of all environments so far, for exploration schedules.
            rng: Source of randomness.
        """
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """What a collector runs."""

    env: Recipe
    """A Gymnasium environment whose observations are single uint8 frames."""
    policy: Recipe
    """A `Policy`."""
    seed: int = 0
    frames_per_step: int = 1
    """Game frames per step."""
    figures: tuple[str, ...] = ()
    """Entries of an episode's last `info` to report; if empty, all numbers, strings and booleans."""

    def __post_init__(self) -> None:
        if self.frames_per_step < 1:
            raise CollectError(f"frames_per_step is {self.frames_per_step}: give 1 or more")


@dataclass(frozen=True, slots=True)
class Episode:
    """An episode that ended."""

    lane: int
    """Lane of the replay, which is the number of the environment."""
    returned: float
    """Sum of rewards."""
    length: int
    """Steps."""
    figures: Mapping[str, Figure]
    """Entries of the last `info`, such as `flag` and `distance`."""
    version: int = 0
    """Version of the weights when it ended."""


@dataclass(frozen=True, slots=True)
class Restart:
    """A worker that was replaced."""

    worker: int
    reason: str


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds spent by the processes that run environments, summed over them."""

    act_s: float = 0.0
    env_s: float = 0.0
    """Steps and resets."""
    store_s: float = 0.0
    """Writing into replay."""
    weights_s: float = 0.0
    """Loading new weights."""
    report_s: float = 0.0
    """Reporting episodes and waking the learner."""
    ratio_s: float = 0.0
    """Waiting for the learner, to keep the ratio of updates to steps."""

    @property
    def transport_s(self) -> float:
        """Moving data between processes: writing steps, loading weights, reporting."""
        return self.store_s + self.weights_s + self.report_s

    @property
    def busy_s(self) -> float:
        """Everything but waiting for the learner."""
        return self.act_s + self.env_s + self.transport_s

    def __sub__(self, earlier: Spent) -> Spent:
        return Spent(*(getattr(self, each.name) - getattr(earlier, each.name) for each in fields(self)))


@dataclass(frozen=True, slots=True)
class Collected:
    """What was collected since the last call."""

    steps: int
    """Steps added since the last call; often more than requested, as workers run ahead."""
    frames: int
    """Game frames of these steps."""
    episodes: tuple[Episode, ...]
    seconds: float
    """Duration of the call, during which the learner waited."""
    spent: Spent
    overwritten: int = 0
    """Steps overwritten before they were ever sampled; requires calls of `sampled`."""
    lost: int = 0
    """Steps that workers counted as stored but that never arrived in replay. Always 0 unless there is a bug."""
    lost_with_worker: int = 0
    """Steps that ended workers had made but not yet stored."""
    restarts: tuple[Restart, ...] = ()
    lag: int = 0
    """Age of the stalest worker's weights, in published versions."""

    @property
    def gone(self) -> int:
        """The name of `lost_with_worker` in version 0.1."""
        warnings.warn("Collected.gone is deprecated: use lost_with_worker", DeprecationWarning, stacklevel=2)
        return self.lost_with_worker


class Collector(Protocol):
    """Runs environments and writes their steps into a replay."""

    def get_ready(self) -> None:
        """Start the workers and wait until they are ready; otherwise `collect` does. Call `restore` before it."""

    def collect(self, steps: int) -> Collected:
        """Collect until replay holds `steps` more than all earlier calls requested."""
        ...

    def publish(self, weights: Weights) -> int:
        """Publish new weights with the same names and shapes as before; return their version, counted from 1."""
        ...

    def sampled(self, index: np.ndarray) -> None:
        """Record which steps were sampled (`Batch.index`), to count those that never were."""

    def state(self) -> dict[str, Json]:
        """Return the state for a checkpoint, as JSON values. Environments are not included."""
        ...

    def restore(self, state: Mapping[str, Json]) -> None:
        """Continue from a checkpoint with new episodes and new seeds. Call it after restoring the replay."""

    def close(self) -> None:
        """Stop all workers and close environments. A second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def as_arrays(weights: Weights) -> dict[str, np.ndarray]:
    """Return weights as NumPy arrays, without a copy where possible."""
    arrays = {}
    for name, each in weights.items():
        detach = getattr(each, "detach", None)  # a tensor's; checked this way to avoid importing torch
        arrays[name] = np.asarray(each if detach is None else detach().cpu())
    return arrays
