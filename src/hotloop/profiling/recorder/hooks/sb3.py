"""Hooks for Stable-Baselines3 and subclasses of it: rollout and train, acting, storing, logging.

The other hooks handle its environments, buffers, networks and optimisers; here are the parts that only it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hotloop.phases import Phase
from hotloop.profiling.recorder.hooks.patching import Patches, Subject, Target, root, targets

if TYPE_CHECKING:
    from hotloop.profiling.recorder.hooks.state import HookState

METHODS: dict[str, dict[str, Phase | None]] = {
    "BaseAlgorithm": {
        "collect_rollouts": None,
        "train": None,
        "predict": Phase.ACT,
        "_sample_action": Phase.ACT,
        "_store_transition": Phase.STORE,
        "_update_info_buffer": Phase.LOG,
        "dump_logs": Phase.LOG,
        "_dump_logs": Phase.LOG,
        "save": Phase.CHECKPOINT,
        "set_parameters": Phase.SYNC_WEIGHTS,
    },
    "BaseModel": {"evaluate_actions": Phase.FORWARD, "predict_values": Phase.FORWARD},
    "BaseCallback": {"on_step": Phase.LOG, "on_rollout_end": Phase.LOG},
    "Logger": {"dump": Phase.LOG},
}
"""Base class to the methods to time in it and in its subclasses."""

_PACKAGE = "stable_baselines3"


def on_class(cls: type, patches: Patches, state: HookState) -> None:
    """Time the methods that an SB3 class, or one derived from it, defines."""
    for base in cls.__mro__:
        methods = METHODS.get(base.__name__)
        if methods is not None and root(base) == _PACKAGE:
            for name, phase in methods.items():
                patches.time_method(cls, name, phase)


SUBJECT = Subject(
    on_class=on_class,
    on_import={
        f"{_PACKAGE}.common.utils": targets(
            Target("polyak_update", Phase.SYNC_WEIGHTS), Target("obs_as_tensor", Phase.TRANSFER)
        ),
        f"{_PACKAGE}.common.evaluation": targets(Target("evaluate_policy", Phase.EVALUATE)),
    },
)
