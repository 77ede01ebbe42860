"""Options of the game, validated once, and the codes that kernels and reference use for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hotloop.training.envs.validate import build_config, check_choice, check_whole

FEATURES: dict[str, int] = {"basic": 10, "flood": 13, "selective": 18, "enhanced": 23, "grid": 0}
"""Feature sets and their sizes. Each includes the previous one, except `grid`, which is the board itself."""

BASIC, FLOOD, SELECTIVE, ENHANCED, GRID = range(len(FEATURES))
LEVELS: dict[str, int] = {name: level for level, name in enumerate(FEATURES)}
ACTIONS: dict[str, int] = {"relative": 3, "absolute": 4}
CAUSES = (None, "wall", "self", "entrapment", "timeout", "win")
"""Why an episode ended, indexed by the kernel's code."""

RUNNING, WALL, SELF, ENTRAPMENT, TIMEOUT, WIN = range(len(CAUSES))
UP, RIGHT, DOWN, LEFT = range(4)
START_LENGTH = 3
SMALLEST, LARGEST = 5, 64
NOWHERE = -1


@dataclass(frozen=True, slots=True)
class Rewards:
    """Reward of a step. `food` and `death` replace `step` and `shaping`; `timeout` is added to the last step."""

    food: float = 10.0
    death: float = -10.0
    step: float = -0.01
    shaping: float = 0.5
    """Multiplied by (distance to the food before − after) ÷ board, in steps without food or death."""
    timeout: float = -5.0


@dataclass(frozen=True, slots=True)
class SnakeConfig:
    """Options of the game. Invalid values are rejected here, so later code does not check again."""

    board: int = 10
    features: str = "basic"
    actions: str = "relative"
    max_steps: int = 1000
    tail_free: bool = False
    """Whether the head may move into the cell that the tail is about to leave. In the study it may not."""
    rewards: Rewards = field(default_factory=Rewards)

    def __post_init__(self) -> None:
        if isinstance(self.rewards, Mapping):
            object.__setattr__(self, "rewards", build_config("Snake", Rewards, self.rewards, "reward"))
        check_choice("features", self.features, FEATURES)
        check_choice("actions", self.actions, ACTIONS)
        check_whole("board", self.board, SMALLEST, LARGEST)
        check_whole("max_steps", self.max_steps, 1)

    @property
    def cells(self) -> int:
        """Number of cells of the board. A snake of this length has won."""
        return self.board * self.board
