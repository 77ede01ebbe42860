"""Whole training on pictures of Ricochet Robots, time of a step of a board: ours, the study's, and sb3-contrib's.

All play the same environment, level 0, pictures of 128×128, with two threads. ConvLSTM: the preset `rgb-convlstm`, 16
boards of which 8 are a minibatch, 16 channels, 2 epochs, beside the study's network, 8 boards, 32 channels, 4 epochs,
which does two steps at a time, as each takes long: what a step of training costs as each of them is set up, not the
same arithmetic. NatureCNN and LSTM: the preset `lstm` beside RecurrentPPO of sb3-contrib with the same encoder, one
LSTM of 256 for policy and value, as many boards, steps, epochs and minibatches: the same arithmetic. An iteration is
collecting and learning; the environment's part is shown by ricochet_env.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from measure import Row, Times, against_limit, estimate, interleave, main, ratio_of, say
from ricochet_study_network import BOARDS as STUDY_BOARDS
from ricochet_study_network import STEPS as STUDY_STEPS
from ricochet_study_network import study_training

from hotloop.training.envs.ricochet import RicochetVectorEnv
from hotloop.training.pipelines.ppo_ricochet import PRESETS, Agent, Config, Steps, Training, collect, learn
from hotloop.training.run.counts import Counts, Episodes
from hotloop.training.run.phase_timer import Laps
from hotloop.training.tasks import ricochet
from hotloop.training.tasks.curriculum import Solved

ENVS, ROLLOUT, BOARDS, EPOCHS, BANK = 16, 16, 8, 4, 500
THREADS = 2
LEAST_PER_S, ORIGINAL_PER_S = 50.0, 2.7
STUDY, PEER = "the study's network", "sb3-contrib"
Step = Callable[[], object]


def run(quick: bool) -> list[Row]:
    """Measure everything this bench shows."""
    torch.set_num_threads(THREADS)
    small = {"envs": ENVS, "boards": BOARDS, "rollout": ROLLOUT, "bank_boards": BANK, "threads": THREADS}
    lstm = replace(PRESETS["lstm"][0], epochs=EPOCHS, **small)
    rows = []
    for what, mine, other, asked in (
        ("ConvLSTM", replace(PRESETS["rgb-convlstm"][0], **small), STUDY, LEAST_PER_S / ORIGINAL_PER_S),
        ("NatureCNN and LSTM", lstm, PEER, 2.0),
    ):
        say(f"ricochet_training: {what}")
        peer, at_once = (
            (study_training(), STUDY_BOARDS * STUDY_STEPS) if other == STUDY else (sb3(lstm), ENVS * ROLLOUT)
        )
        times = interleave({"ours": ours(mine), other: peer}, 1 if quick else 8, calls=1)
        own, theirs = times["ours"] / (ENVS * ROLLOUT), times[other] / at_once
        if other == STUDY:
            shown = estimate(lambda each: float(np.median(each)) / 1e6, own)
            rows.append(against_limit(f"a step of training, {what}", shown, 1e3 / LEAST_PER_S, "ms"))
        rows.append(beside(f"a step of training, {what}", own, theirs, other, asked))
    return rows


def beside(name: str, own: Times, peer: Times, peer_name: str, asked: float) -> Row:
    """Make the row that compares ours with a peer's."""
    ratio = estimate(ratio_of, peer, own)
    mine, theirs = float(np.median(own)), float(np.median(peer))
    return Row(
        f"{name} ({1e9 / mine:.0f} steps/s)", mine / 1e6, theirs / 1e6, f"{peer_name}, {1e9 / theirs:.1f} steps/s",
        "ms", ratio.value, ratio.low, ratio.high, asked,
    )  # fmt: skip


def ours(config: Config) -> Step:
    """Return an iteration of ppo-ricochet."""
    env = ricochet.make_env(config, config.envs, config.level)
    obs, _ = env.reset(seed=0)
    agent = Agent(config)
    training = Training(
        config,
        env,
        agent,
        Steps.empty(config.rollout, obs),
        np.random.default_rng(0),
        obs,
        np.ones(config.envs, np.bool_),
        agent.initial_memory(config.envs),
        Counts(),
        Episodes(config.envs),
        config.level,
        Solved(config.envs, config.max_steps),
    )
    timed = Laps()

    def iteration() -> None:
        learn(training, collect(training, timed), timed)

    return iteration


def sb3(config: Config) -> Step:
    """Return an iteration of sb3-contrib's RecurrentPPO."""
    from sb3_contrib import RecurrentPPO

    model = RecurrentPPO(
        "CnnLstmPolicy", boards(config), n_steps=config.rollout, batch_size=config.boards * config.rollout,
        n_epochs=config.epochs, learning_rate=config.lr, ent_coef=config.entropy, device="cpu", seed=0,
        policy_kwargs={
            "lstm_hidden_size": config.hidden, "shared_lstm": True, "enable_critic_lstm": False, "net_arch": [],
        },
    )  # fmt: skip
    steps = config.envs * config.rollout
    return lambda: model.learn(steps, reset_num_timesteps=False)


def boards(config: Config) -> Any:
    """Return our environment as Stable-Baselines3 wants it."""
    from stable_baselines3.common.vec_env import VecEnv

    class Boards(VecEnv):
        def __init__(self, env: RicochetVectorEnv) -> None:
            self.env = env
            self.render_mode = None
            super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)

        def reset(self) -> Any:
            return self.env.reset(seed=0)[0]

        def step_async(self, actions: np.ndarray) -> None:
            self.actions = actions

        def step_wait(self) -> Any:
            obs, reward, terminated, truncated, info = self.env.step(self.actions)
            infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
            for i in np.flatnonzero(terminated | truncated):
                infos[i] = {"terminal_observation": info["final_obs"][i], "TimeLimit.truncated": bool(truncated[i])}
            return obs, reward, terminated | truncated, infos

        def close(self) -> None:
            self.env.close()

        def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
            return [getattr(self, attr_name, None)] * self.num_envs

        def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
            raise NotImplementedError

        def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
            raise NotImplementedError

        def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> Sequence[bool]:  # type: ignore[override]
            return [False] * self.num_envs

    return Boards(ricochet.make_env(config, config.envs, config.level))


if __name__ == "__main__":
    main(run, __doc__)
