"""An agent out of its checkpoint: what it takes, where it computes, and whom it may be compared with."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hotloop.cli.evaluate import check_comparable
from hotloop.errors import HotloopError
from hotloop.training.agents.load import TrainedAgent, on_device
from hotloop.training.pipelines import dqn_mario, dqn_snake, ppo_snake

GRID = dqn_snake.Config(board=6, features="grid", network="cnn")


def agent_of(shape: tuple[int, ...]) -> TrainedAgent:
    inner = SimpleNamespace(observation_shape=shape, act=lambda obs: np.arange(len(obs)))
    return TrainedAgent("dqn-snake", None, 0, Path("run"), inner)


def trained(pipeline: str, config: Any) -> TrainedAgent:
    return TrainedAgent(pipeline, config, 0, Path(pipeline), None)


def test_one_observation_or_several_are_taken() -> None:
    agent = agent_of((10,))
    assert agent.act(np.zeros(10)) == 0
    assert agent.act(np.zeros((3, 10))).tolist() == [0, 1, 2]
    assert agent_of((4, 8, 8)).act(np.zeros((2, 4, 8, 8))).tolist() == [0, 1]


@pytest.mark.parametrize("shape", [(3, 13), (13,), (3, 10, 1), (2, 3, 10), ()])
def test_observations_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(HotloopError, match=r"give this agent one of \(10,\), or N of them, \(N, 10\)"):
        agent_of((10,)).act(np.zeros(shape))


@pytest.mark.parametrize(
    ("kernel", "device", "played_with"),
    [
        ("numba", "cpu", "numba"),
        ("numba", "cuda", "torch"),
        ("numba", "cuda:1", "torch"),
        ("torch-fused", "cuda", "torch-fused"),
        ("torch", "cpu", "torch"),
    ],
)
def test_what_numba_trained_is_played_by_torch_where_numba_cannot_compute(
    kernel: str, device: str, played_with: str
) -> None:
    settings = {"kernel": kernel, "device": "cpu", "board": 8}
    assert on_device(settings, device) == {"kernel": played_with, "device": device, "board": 8}
    assert settings["device"] == "cpu"


def test_agents_of_one_game_are_compared_and_of_two_are_not() -> None:
    ours = trained("dqn-snake", dqn_snake.Config())
    check_comparable(ours, trained("ppo-snake", ppo_snake.Config(board=8)), [8, 10, 20], False)
    with pytest.raises(HotloopError, match="--compare dqn-mario is of dqn-mario, not of the game of dqn-snake"):
        check_comparable(ours, trained("dqn-mario", dqn_mario.Config()), [10], False)


def test_the_other_agent_must_be_able_to_play_there_too() -> None:
    ours = trained("dqn-snake", dqn_snake.Config(board=8))
    check_comparable(ours, trained("dqn-snake", GRID), [6], False)
    with pytest.raises(HotloopError, match="--compare dqn-snake: --board 8: an agent that sees the grid"):
        check_comparable(ours, trained("dqn-snake", GRID), [8], False)
