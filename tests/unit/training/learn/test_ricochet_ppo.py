"""PPO for boards: sequences equal single steps, episodes clear the memory, and checkpoints restore the learner."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hotloop.errors import HotloopError
from hotloop.training.learn import BoardPPO, BoardPPOConfig, BoardShape, Sequences
from hotloop.training.learn.loss_terms import normalise, ppo_losses
from hotloop.training.learn.ricochet_ppo.drc import border
from hotloop.training.learn.ricochet_ppo.shape import PAPER, pieces
from hotloop.training.pipelines.ppo_ricochet import board_loss

PLANES = BoardShape((8, 4, 4), 8, 4, core="drc", channels=4, layers=2, repeats=2, hidden=8)
PLAIN = BoardShape((8, 4, 4), 8, 4, channels=4, layers=2, hidden=8)
PICTURE = BoardShape((128, 128, 3), 8, 4, core="drc", channels=4, layers=1, repeats=1, hidden=8)
SWEPT = BoardShape((128, 128, 3), 8, 8, channels=4, layers=1, hidden=8)
READ = BoardShape((128, 128, 3), 8, 8, channels=4, layers=1, hidden=8, read_planes=True)
NATURE = BoardShape((128, 128, 3), 8, 16, core="lstm", hidden=8)
SHAPES = {"drc": PLANES, "sweep": PLAIN, "picture": PICTURE, "swept picture": SWEPT, "read picture": READ}
SHAPES |= {"lstm": NATURE}
WITH_MEMORY = ["drc", "picture", "lstm"]
STEPS, BOARDS = 5, 4


def make(shape: BoardShape, **more: object) -> BoardPPO:
    return BoardPPO(BoardPPOConfig(shape, boards=2, epochs=2, **more), board_loss, seed=1)  # type: ignore[arg-type]


def rollout(agent: BoardPPO, seed: int = 0) -> Sequences:
    rng = np.random.default_rng(seed)
    size = (STEPS, BOARDS)
    most = 256 if agent.config.shape.is_picture else 2
    memory = rng.standard_normal(agent.initial_memory(BOARDS).shape, dtype=np.float32)
    real = [rng.standard_normal(size, dtype=np.float32) for _ in range(2)]
    obs = rng.integers(0, most, (*size, *agent.config.shape.observation), dtype=np.uint8)
    action, log_prob = rng.integers(0, 8, size), np.full(size, -np.log(8), np.float32)
    return Sequences(obs, rng.random(size) < 0.3, memory, action, log_prob, *real)


@pytest.mark.parametrize("name", SHAPES)
def test_sequence_equals_single_steps(name: str) -> None:
    agent = make(SHAPES[name])
    given, memory = rollout(agent), rollout(agent).memory
    with torch.no_grad():
        whole = (torch.from_numpy(each) for each in (given.obs, memory, given.fresh))
        logits, values, after = agent.network.unroll(*whole)[:3]
    for t in range(STEPS):
        one, value, memory = agent.evaluate(given.obs[t], memory, given.fresh[t])
        assert one == pytest.approx(logits.unflatten(0, (STEPS, BOARDS))[t].numpy(), abs=1e-5)
        assert value == pytest.approx(values.unflatten(0, (STEPS, BOARDS))[t].numpy(), abs=1e-5)
    assert memory == pytest.approx(after.numpy(), abs=1e-5)


@pytest.mark.parametrize("name", WITH_MEMORY)
def test_memory_is_cleared_where_an_episode_begins(name: str) -> None:
    agent, fresh = make(SHAPES[name]), np.array([True, False, True, False])
    given = rollout(agent)
    logits, _, _ = agent.evaluate(given.obs[0], given.memory, fresh)
    empty, _, _ = agent.evaluate(given.obs[0], agent.initial_memory(BOARDS), fresh)
    assert (logits[fresh] == empty[fresh]).all()
    assert (logits[~fresh] != empty[~fresh]).any()


@pytest.mark.parametrize("name", WITH_MEMORY)
def test_gradient_does_not_cross_episodes(name: str) -> None:
    agent = make(SHAPES[name])
    given = rollout(agent)
    memory = torch.from_numpy(given.memory).requires_grad_()
    fresh = np.zeros((STEPS, BOARDS), np.bool_)
    fresh[2, 0] = True
    logits, *_ = agent.network.unroll(torch.from_numpy(given.obs), memory, torch.from_numpy(fresh))
    logits.unflatten(0, (STEPS, BOARDS))[-1].sum().backward()
    assert memory.grad is not None
    assert not memory.grad[:, 0].any(), "board 0 starts an episode at step 2"
    assert memory.grad[:, 1].any()


@pytest.mark.parametrize("name", SHAPES)
def test_minibatch_uses_ppos_loss_over_whole_sequences(name: str) -> None:
    agent, reference = make(SHAPES[name]), make(SHAPES[name])
    given, chosen = rollout(agent), torch.tensor([2, 0])
    metrics = agent._minibatch(Sequences(*(torch.from_numpy(np.ascontiguousarray(each)) for each in given[:7])), chosen)  # type: ignore[arg-type]
    part = [torch.from_numpy(np.ascontiguousarray(each[:, [2, 0]])) for each in given[:7]]
    logits, value, *_ = reference.network.unroll(part[0], part[2], part[1])
    old = (part[3].flatten(), part[4].flatten(), normalise(part[5].flatten()), part[6].flatten())
    losses = ppo_losses(logits, value, old, 0.2)
    assert metrics.tolist() == pytest.approx([each.item() for each in losses], abs=1e-5)
    optimiser = torch.optim.Adam(reference.network.parameters(), lr=3e-4, eps=1e-5)
    (losses.policy + 0.5 * losses.value - 0.01 * losses.entropy).backward()
    torch.nn.utils.clip_grad_norm_(reference.network.parameters(), 0.5)
    optimiser.step()
    for ours, theirs in zip(agent.network.parameters(), reference.network.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)


def test_without_memory_minibatches_are_random_steps_of_random_boards() -> None:
    agent, minibatches = make(PLAIN), []
    agent._minibatch = lambda rollout, chosen: minibatches.append(rollout.action[0, chosen]) or torch.zeros(5)  # type: ignore[method-assign, func-returns-value]
    given = rollout(agent)._replace(action=np.arange(STEPS * BOARDS).reshape(STEPS, BOARDS))
    agent.update(given, np.random.default_rng(0))
    assert [len(each) for each in minibatches] == [2 * STEPS] * 4, "two epochs of two minibatches"
    for epoch in (minibatches[:2], minibatches[2:]):
        assert sorted(torch.cat(epoch).tolist()) == list(range(STEPS * BOARDS))
    assert minibatches[0].tolist() != sorted(minibatches[0].tolist())


# Not with NatureCNN: on CPUs without bfloat16 instructions its large pictures take minutes.
@pytest.mark.parametrize("name", ["drc", "sweep", "swept picture"])
def test_bfloat16_is_close_to_float32(name: str) -> None:
    exact, lower = make(SHAPES[name]), make(SHAPES[name], precision="bfloat16")
    given = rollout(exact)
    expected, found = (each.update(given, np.random.default_rng(0)) for each in (exact, lower))
    assert found.value_loss == pytest.approx(expected.value_loss, rel=0.05)
    assert found.entropy == pytest.approx(expected.entropy, rel=0.02)
    assert all(parameter.dtype == torch.float32 for parameter in lower.network.parameters())


@pytest.mark.parametrize("name", SHAPES)
def test_warming_up_does_not_change_the_learner(name: str) -> None:
    agent = make(SHAPES[name])
    before = agent.tensors()
    agent.warm(rollout(agent).obs[0])
    assert all((before[each] == agent.tensors()[each]).all() for each in before)
    assert all(parameter.grad is None for parameter in agent.network.parameters())


def test_policy_does_not_depend_on_the_order_of_robots() -> None:
    agent = make(PLAIN)
    obs = np.zeros((1, 8, 4, 4), np.uint8)
    obs[0, 4, 3, 3] = obs[0, 5, 0, 1] = obs[0, 6, 0, 1] = obs[0, 7, 2, 2] = 1
    # The first convolution has different weights for each robot's plane: make them equal.
    with torch.no_grad():
        agent.network.encoder.near.weight[:, 7] = agent.network.encoder.near.weight[:, 6]  # type: ignore[union-attr, index]
    logits, value, _ = agent.evaluate(obs, agent.initial_memory(1), np.ones(1, np.bool_))
    swapped, same, _ = agent.evaluate(obs[:, [0, 1, 2, 3, 4, 5, 7, 6]], agent.initial_memory(1), np.ones(1, np.bool_))
    assert swapped[0] == pytest.approx(logits[0, [4, 5, 6, 7, 0, 1, 2, 3]], abs=1e-6)
    assert same == pytest.approx(value, abs=1e-6)
    assert logits[0, :4] != pytest.approx(logits[0, 4:], abs=1e-6)


def test_pictures_are_cut_into_cells() -> None:
    picture = torch.arange(2 * 128 * 128 * 3).remainder(251).to(torch.uint8).view(2, 128, 128, 3)
    cut = pieces(picture, 16)
    assert cut.shape == (2, 16, 16, 192)
    expected = (torch.tensor(PAPER) - picture[1, 24:32, 40:48].float()) / 64
    assert torch.allclose(cut[1, 3, 5].view(8, 8, 3), expected)


def test_blank_paper_is_zero() -> None:
    from hotloop.training.envs.ricochet import raster

    assert raster.PAPER == PAPER
    blank = raster.canvas(16, 128).blank.reshape(1, 128, 128, 3)
    cut = pieces(torch.from_numpy(blank), 16)
    paper = (torch.from_numpy(blank) == torch.tensor(raster.PAPER)).all(-1)
    assert not cut[0, 0, 1].view(8, 8, 3)[1:, 1:].any(), "the inside of a cell, without the lines around it"
    assert (cut == 0).sum() == 3 * paper.sum() > 0


def test_loaded_learner_continues_bit_by_bit() -> None:
    agent, other = make(PLANES), make(PLANES)
    agent.update(rollout(agent), np.random.default_rng(0))
    other.load(agent.tensors())
    for each in (agent, other):
        each.update(rollout(each, 1), np.random.default_rng(1))
    ours, theirs = agent.tensors(), other.tensors()
    assert agent.updates == other.updates == 8
    assert all((ours[name] == theirs[name]).all() for name in ours)


def test_actions_are_sampled_from_the_policy() -> None:
    agent = make(PLAIN)
    given = rollout(agent)
    obs, fresh = np.repeat(given.obs[0, :1], 4000, axis=0), np.ones(4000, np.bool_)
    acted, memory = agent.act(obs, agent.initial_memory(4000), fresh, np.random.default_rng(0))
    logits, _, _ = agent.evaluate(obs[:1], agent.initial_memory(1), fresh[:1])
    policy = np.exp(logits[0]) / np.exp(logits[0]).sum()
    assert np.bincount(acted.action, minlength=8) / 4000 == pytest.approx(policy, abs=0.03)
    assert np.exp(acted.log_prob) == pytest.approx(policy[acted.action], abs=1e-5)
    assert memory.shape == (0, 4000, 4, 4, 4)


def test_border_plane() -> None:
    assert border(torch.zeros(1, 3, 4, 4))[0, 0].tolist() == [[1, 1, 1, 1], [1, 0, 0, 1], [1, 0, 0, 1], [1, 1, 1, 1]]


def test_invalid_arguments_are_reported() -> None:
    with pytest.raises(HotloopError, match="cannot be cut into 12 cells"):
        BoardShape((128, 128, 3), 8, 12)
    with pytest.raises(HotloopError, match="at least 1"):
        BoardShape((7, 4, 4), 4, 4, layers=0)
    with pytest.raises(HotloopError, match="5 actions: give four a robot"):
        BoardShape((7, 4, 4), 5, 4)
    with pytest.raises(HotloopError, match="7 planes are too few for 2 robots"):
        BoardShape((7, 4, 4), 8, 4)
    with pytest.raises(HotloopError, match="lstm reads pictures"):
        BoardShape((7, 4, 4), 4, 4, core="lstm")
    with pytest.raises(HotloopError, match="precision is 'float16'"):
        make(PLAIN, precision="float16")
    with pytest.raises(HotloopError, match="planes are read out of pictures"):
        BoardShape((8, 4, 4), 8, 4, read_planes=True)
    with pytest.raises(HotloopError, match=r"auxiliary is 1.0: give 0"):
        make(SWEPT, auxiliary=1.0)
    with pytest.raises(HotloopError, match="the rollout has no planes"):
        agent = make(READ, auxiliary=1.0)
        agent.update(rollout(agent), np.random.default_rng(0))
    with pytest.raises(HotloopError, match="multiple of the minibatch, 3"):
        agent = BoardPPO(BoardPPOConfig(PLAIN, boards=3), board_loss)
        agent.update(rollout(agent), np.random.default_rng(0))
    with pytest.raises(HotloopError, match="nothing for 'board"):
        make(PLANES).load({"updates": np.array(0)})
