"""Public names: functions stay callable whatever is imported, and moved modules keep their old names."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "first",
    [
        "import hotloop.profiling.recorder.session",
        "import hotloop.profiling.diagnosis.finding",
        "hotloop.record, hotloop.explain",
    ],
)
def test_importing_a_subpackage_keeps_the_function_of_that_name_callable(first, tmp_path):
    """`hotloop run` imports the packages before the script, which then could not call the functions."""
    code = (
        f"import hotloop\n{first}\n"
        "with hotloop.record('out'):\n    sum(range(10**6))\n"
        "print(len(hotloop.explain(hotloop.load('out'))))\n"
        "from hotloop.profiling.recorder.session import record\nfrom hotloop.profiling.diagnosis import explain\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "0"


@pytest.mark.parametrize(
    ("old", "name"),
    [
        ("hotloop.collect", "Workers"),
        ("hotloop.learn", "QShape"),
        ("hotloop.pipelines", "load_agent"),
        ("hotloop.pipelines.agents", "load_agent"),
        ("hotloop.pipelines.dqn_snake", "train"),
        ("hotloop.pipelines.options", "Options"),
        ("hotloop.pipelines.shipped", "save_agent"),
        ("hotloop.replay", "FrameReplay"),
    ],
)
def test_a_moved_module_is_importable_by_its_old_name_with_a_warning(old: str, name: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"{old} is deprecated: import hotloop.training"):
        found = getattr(importlib.import_module(old), name)
    assert found.__module__.startswith("hotloop.training.")


@pytest.mark.parametrize("game", ["carracing", "nes", "ricochet", "snake"])
def test_the_short_names_of_the_environments_still_work(game: str, recwarn: pytest.WarningsRecorder) -> None:
    short = importlib.import_module(f"hotloop.envs.{game}")
    defined = importlib.import_module(f"hotloop.training.envs.{game}")
    assert set(short.__all__) == set(defined.__all__)
    assert all(getattr(short, name) is getattr(defined, name) for name in short.__all__)
    assert not [each for each in recwarn if "deprecated" in str(each.message)]


def test_renamed_members_keep_their_old_names_with_a_warning() -> None:
    from hotloop.training.collect import Collected
    from hotloop.training.collect.interface import Spent
    from hotloop.training.learn import BoardPPO, BoardPPOConfig, BoardShape
    from hotloop.training.pipelines.ppo_ricochet import board_loss

    collected = Collected(steps=3, frames=3, episodes=(), seconds=1.0, spent=Spent(), lost_with_worker=2)
    with pytest.warns(DeprecationWarning, match="use lost_with_worker"):
        assert collected.gone == 2
    shape = BoardShape(observation=(9, 8, 8), actions=8, side=8, core="drc")
    learner = BoardPPO(BoardPPOConfig(shape), board_loss)
    with pytest.warns(DeprecationWarning, match="use initial_memory"):
        assert learner.nothing(3).tolist() == learner.initial_memory(3).tolist()


def test_learners_of_the_old_module_supply_their_loss_themselves() -> None:
    """Version 0.1's documented `DQN(config, seed=0)` keeps working."""
    from hotloop.training.learn import DQNConfig, FrameDQNConfig, FrameQShape, PPOConfig, QShape, SACConfig, SACShape

    old = importlib.import_module("hotloop.learn")
    configs = {
        "DQN": DQNConfig(QShape((4,), 3, (8,))),
        "PPO": PPOConfig((4,), 3),
        "FrameDQN": FrameDQNConfig(FrameQShape((4, 84, 84), 3)),
        "SAC": SACConfig(SACShape(observation=(6,), actions=2)),
    }
    for name, config in configs.items():
        with pytest.warns(DeprecationWarning, match="hotloop.learn is deprecated: import hotloop.training.learn"):
            learner = getattr(old, name)(config, seed=0)
        assert learner.updates == 0
        learner.trial(learner.supported_kernels()[0], 1)()
