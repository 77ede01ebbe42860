"""Mario as its pipeline plays it: emulator settings, and configurations rejected before the start."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("stable_retro", reason="stable-retro is not installed: pip install 'hotloop[nes]'")

import hotloop.training.learn
from hotloop.errors import HotloopError
from hotloop.training.envs.nes.rom import RUNNER
from hotloop.training.learn import Choice
from hotloop.training.pipelines.dqn_mario import PRESETS, Agent, Config
from hotloop.training.replay import FrameReplay
from hotloop.training.tasks import mario
from hotloop.training.tasks.game import Act

RUN, RUN_JUMP, LEFT = 3, 4, 6


def right(obs: np.ndarray) -> np.ndarray:
    return np.full(len(obs), RUN_JUMP)


def dancer() -> Act:
    """Run back and forth, which shows which actions were repeated."""
    steps = cycle((RUN, RUN, RUN, LEFT))
    return lambda obs: np.full(len(obs), next(steps))


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_can_be_played(preset: str) -> None:
    config = PRESETS[preset][0]
    mario.check(config)
    env = mario.make_env(**mario.options_of(config))
    try:
        frame, _ = env.reset(seed=0)
    finally:
        env.close()
    assert frame.shape == (config.size, config.size)


def test_only_our_own_game_starts_training_episodes_along_the_route(tmp_path: Path) -> None:
    assert mario.start_of(Config()) == "route"
    assert mario.start_of(Config(rom=str(RUNNER))) == "route"
    other = tmp_path / "other.nes"
    other.write_bytes(RUNNER.read_bytes() + b"more")
    assert mario.start_of(Config(rom=str(other), rom_unchecked=True)) == "reached"
    assert mario.start_of(Config(start="begin")) == "begin"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (Config(rom="nowhere.nes"), "cannot be read"),
        (Config(rom=__file__), "not in iNES format"),
        (Config(level="1-5"), "--level 1-5: this cartridge has 1-1, 1-2, 1-3, 1-4"),
        (Config(level="meadow"), "meadow"),
    ],
)
def test_unplayable_configurations_are_rejected(config: Config, message: str) -> None:
    with pytest.raises(HotloopError, match=message):
        mario.check(config)


def test_only_our_own_game_has_known_routes(tmp_path: Path) -> None:
    other = tmp_path / "other.nes"
    other.write_bytes(RUNNER.read_bytes() + b"more")
    with pytest.raises(HotloopError, match="another cartridge"):
        mario.check(Config(rom=str(other)))
    with pytest.raises(HotloopError, match="--start route"):
        mario.check(Config(rom=str(other), rom_unchecked=True, start="route"))
    mario.check(Config(rom=str(other), rom_unchecked=True, level="8-4"))


def test_a_moved_rom_is_reported_in_one_line(tmp_path: Path) -> None:
    config = Config(rom=str(tmp_path / "moved.nes"))
    for call in (
        lambda: mario.levels(config, ["1-2"]),
        lambda: mario.places(replace(config, level="random"), None, False),
    ):
        with pytest.raises(HotloopError, match=r"moved\.nes' cannot be read .* needs it at the same path$"):
            call()


def test_presets_of_the_study() -> None:
    faithful, original = PRESETS["faithful"][0], PRESETS["original"][0]
    assert (faithful.batch, faithful.accumulate) == (2048, 4), "the study's 512, accumulated 4 times"
    assert (faithful.workers, faithful.buffer, faithful.epoch, faithful.publish_epochs) == (4, 50_000, 16, 5)
    assert (original.batch, original.accumulate) == (256, 1)
    assert (original.workers, original.buffer, original.epoch, original.publish_epochs) == (2, 10_000, 8, 3)
    assert (faithful.norm, faithful.try_compile) == (True, True)
    assert (original.norm, original.try_compile) == (False, False), "added to the study later"


@pytest.mark.parametrize(("length", "ahead"), [(4000, 32), (400, 25), (100, 6)])
def test_workers_run_ahead_by_at_most_half_of_the_unsampled_slots(length: int, ahead: int) -> None:
    replay = FrameReplay(2 * length, 2, (8, 8), storage="shared")
    assert mario.ahead_of(replay) == ahead
    replay.close()


def test_an_unavailable_kernel_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def choose(learner: object, updates: int, candidates: object) -> Choice:
        return Choice("torch", {"torch": 1.0, "lean": 2.0}, {"compile": "no compiler"})

    monkeypatch.setattr(hotloop.training.learn, "choose_kernel", choose)
    agent = Agent(Config(channels=(4, 4, 4), hidden=16))
    kernel, note = mario.settle(agent.learner, Config(try_compile=True))
    assert (kernel, agent.learner.kernel) == ("torch", "torch")
    assert note == "hotloop: kernel compile cannot be used here (no compiler); torch is used"


def test_playable_levels() -> None:
    config = Config()
    assert mario.home(config) == "1-1"
    assert mario.places(config, None, False) == ["1-1"]
    assert mario.places(replace(config, level="random"), None, False) == ["1-1", "1-2", "1-3", "1-4"]
    assert mario.levels(config, ["1-2", "1-4"]) == ["1-2", "1-4"]
    for boards, official in (([8], False), (None, True)):
        with pytest.raises(HotloopError, match="other games"):
            mario.places(config, boards, official)


def test_held_out_episodes_are_perturbed_and_repeatable() -> None:
    config = Config(noops=0, sticky=0.0, max_steps=12)
    one, again = (mario.play_episodes(dancer(), config, 4, "1-1") for _ in range(2))
    assert (one.score == again.score).all() and (one.returned == again.returned).all()
    assert one.length.tolist() == [12] * 4 and one.cause.tolist() == ["limit"] * 4
    assert len(set(one.returned.tolist())) > 1, "the same actions, but other ones are repeated"
    assert one.summary()["success_rate"] == 0


def test_always_running_and_jumping_does_not_clear_the_first_level() -> None:
    played = mario.play_episodes(right, Config(), 3, "1-1")
    assert set(played.cause) <= {"death", "deadlock"} and played.summary()["success_rate"] == 0
    assert (played.score > 100).all()


def test_a_watched_episode_is_a_held_out_episode() -> None:
    config = Config(max_steps=12)
    played = mario.play_episodes(right, config, 2, "1-1")
    seen = list(mario.watch(right, config, "1-1", 1, "rgb_array"))
    assert (seen[-1].score, seen[-1].steps, seen[-1].cause) == (played.score[1], 12, "limit")
    assert [each.steps for each in seen] == list(range(13))
    game = mario.watch(right, config, "1-1", 0, "rgb_array")
    assert next(game).draw().shape == (224, 240, 3)
    game.close()
