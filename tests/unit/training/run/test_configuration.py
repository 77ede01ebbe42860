from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from hotloop.cli.recording import ProfileOptions
from hotloop.cli.train import parse
from hotloop.errors import HotloopError
from hotloop.training.pipelines import dqn_snake, ppo_snake
from hotloop.training.registry import PIPELINES, pipeline
from hotloop.training.run import configuration
from hotloop.training.run.options import Options


@pytest.mark.parametrize("module", [dqn_snake, ppo_snake])
def test_a_configuration_survives_its_file(module: object, tmp_path: Path) -> None:
    config = replace(module.Config(), seed=7, hidden=(64, 32), features="basic", reward_death=-100.0)  # type: ignore[attr-defined]
    configuration.write_toml(config, tmp_path / "c.toml")
    settings = configuration.read_toml(tmp_path / "c.toml")
    assert configuration.with_settings(module.Config(), settings, "c.toml") == config  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("envs = 8\nenvz = 9", "unknown setting 'envz'"),
        ('envs = "8"', "envs = '8': give a value of type int"),
        ("double = 1", "double = 1: give a value of type bool"),
        ("envs = ", "is not TOML"),
        ("envs = -1", "--envs is -1: give a number above 0"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(text: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(HotloopError, match=complaint) as caught:
        parse("dqn-snake", ["--config", str(tmp_path / "c.toml")])
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(HotloopError, match="cannot be read"):
        parse("dqn-snake", ["--config", "/nowhere/c.toml"])


def test_flags_stand_over_the_file_and_the_file_over_the_preset(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("envs = 32\nn-step = 2\nlr = 1\n")
    words = ["--preset", "rainbow", "--config", str(tmp_path / "c.toml"), "--n_step", "5"]
    config, _, _, _ = parse("dqn-snake", words)
    assert (config.envs, config.n_step, config.lr, config.noisy) == (32, 5, 1.0, True)


def test_the_studys_own_flags_are_understood() -> None:
    words = ["--timesteps", "9", "--enable-profiling", "--profiling-report=r.json", "--profiling-summary-freq", "2000"]
    _, options, profile, _ = parse("ppo-snake", words)
    assert options == Options(steps=9)
    assert profile == ProfileOptions(profile_report=Path("r.json"), profile_summary_every=2000)


def test_negative_numbers_are_values_and_not_flags() -> None:
    config, _, profile, source = parse("ppo-snake", ["--reward-death", "-100", "--no-profile", "--json"])
    assert (config.reward_death, profile.profile, source.json) == (-100.0, False, True)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--evns", "3"], r"--evns, 3 \(did you mean --envs\?\): see `hotloop train dqn-snake --help`"),
        (["--features", "smell"], "'smell'.*'basic', 'flood'"),
        (["--envs", "many"], "--envs.*'many'"),
        (["--preset", "slow"], "unknown preset 'slow' of dqn-snake: use one of fast, faithful"),
        (["--preset"], "preset"),
        (["--features", "grid"], "--network is mlp: give cnn, for --features grid"),
        (["--steps", "0"], "--steps is 0: give a number above 0"),
        (["--keep", "0"], "--keep is 0: keep at least 1"),
        (["--gamma", "1.5"], "--gamma is 1.5: give a number from 0 to 1"),
        (["--buffer", "100"], "--buffer is 100: give at least the 2512 transitions"),
        (["--no-profile", "--profile-report", "f"], "--no-profile turns off"),
        (["--resume", "runs/x", "--preset", "fast"], "leave --preset out"),
        (["--resume", "/nowhere"], "no checkpoint at /nowhere"),
    ],
)
def test_a_wrong_flag_is_refused_in_one_line(words: list[str], complaint: str) -> None:
    with pytest.raises(HotloopError, match=complaint) as caught:
        parse("dqn-snake", words)
    assert "\n" not in str(caught.value)


def test_an_unknown_pipeline_is_refused_with_those_there_are() -> None:
    with pytest.raises(HotloopError, match=r"unknown pipeline 'dqn': use one of dqn-snake, .*ppo-snake"):
        pipeline("dqn")


def test_only_what_leaves_the_maths_alone_may_differ_when_resumed() -> None:
    config = dqn_snake.Config()
    saved = asdict(config) | {"hidden": [128, 128]}
    configuration.check_same(replace(config, kernel="torch"), saved, Path("c"))
    with pytest.raises(HotloopError, match="cannot resume with --n-step 3: c was trained with 1; leave it out"):
        configuration.check_same(replace(config, n_step=3), saved, Path("c"))


def test_a_checkpoint_older_than_an_option_can_be_resumed_with_its_default() -> None:
    config = dqn_snake.Config()
    saved = asdict(config) | {"hidden": [128, 128]}
    del saved["tail_free"]
    configuration.check_same(config, saved, Path("c"))
    with pytest.raises(HotloopError, match="cannot resume with --tail-free True: c was trained with False; leave it"):
        configuration.check_same(replace(config, tail_free=True), saved, Path("c"))


def test_a_derived_configuration_takes_what_has_the_same_name() -> None:
    derived = configuration.derive(ppo_snake.Config, dqn_snake.Config(board=7, gamma=0.5), rollout=16)
    assert (derived.board, derived.gamma, derived.rollout) == (7, 0.5, 16)
    assert derived.minibatch == ppo_snake.Config().minibatch, "dqn-snake has no such setting"


@pytest.mark.parametrize("name", PIPELINES)
def test_every_pipeline_has_the_same_shape(name: str) -> None:
    module = pipeline(name)
    assert {"fast", "faithful"} <= set(module.PRESETS)
    assert module.PRESETS["fast"][0] == module.Config()
    assert all(callable(getattr(module, part)) for part in ("Agent", "collect", "learn", "train"))


@pytest.mark.parametrize(
    ("name", "value"),
    [("hidden", ["x"]), ("hidden", [True]), ("hidden", 3), ("features", "xx"), ("network", None), ("envs", 1 << 63),
     ("lr", float("nan")), ("lr", 10**400), ("double", 0), ("device", 3)],
)  # fmt: skip
def test_settings_of_a_checkpoint_have_the_types_of_the_configuration(name: str, value: object) -> None:
    with pytest.raises(HotloopError, match=f"c has {name} = "):
        configuration.with_settings(dqn_snake.Config(), {name: value}, "c")


def test_absurd_sizes_are_refused() -> None:
    with pytest.raises(HotloopError, match="--envs is 2147483648: give a number above 0, at most"):
        dqn_snake.Config(envs=1 << 31)
