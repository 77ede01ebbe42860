"""DQN on frames against values computed by hand, its kernels against the reference, and its policy."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from hotloop.errors import HotloopError
from hotloop.training.learn import FrameDQN, FrameDQNConfig, FrameQRule, FrameQShape, Transitions
from hotloop.training.learn.frame_dqn import torch_kernels
from hotloop.training.learn.frame_dqn.learner import random_frame_batch
from hotloop.training.learn.frame_dqn.policy import Exploration, FramePolicy
from hotloop.training.learn.frame_dqn.state import PHASES, statistics
from hotloop.training.learn.kernel_choice import choose_kernel
from hotloop.training.pipelines.dqn_mario import move_target, q_goal, q_loss

RULE = FrameQRule(q_goal, q_loss, move_target)

PLAIN = FrameQShape((3, 36, 36), 5, convs=((4, 8, 4), (8, 4, 2)), hidden=16)
NORMED = FrameQShape((3, 36, 36), 5, convs=((4, 8, 4), (8, 4, 2)), hidden=16, norm=True)
ODD = FrameQShape((2, 29, 29), 3, convs=((4, 5, 3), (8, 3, 2)), hidden=16, dueling=False)
SHAPES = {"plain": PLAIN, "normed": NORMED, "odd": ODD}


def make(shape: FrameQShape, kernel: str = "torch", **more: object) -> FrameDQN:
    return FrameDQN(FrameDQNConfig(shape, **({"batch": 8} | more)), RULE, seed=3, kernel=kernel)  # type: ignore[arg-type]


def rows(agent: FrameDQN, updates: int = 1, seed: int = 0) -> Transitions:
    return random_frame_batch(agent.config, updates, np.random.default_rng(seed))


def difference(ours: FrameDQN, theirs: FrameDQN) -> float:
    a, b = ours.tensors(), theirs.tensors()
    assert a.keys() == b.keys()
    return max(np.abs(a[name] - b[name]).max() for name in a if a[name].dtype == np.float32)


@pytest.mark.parametrize("name", SHAPES)
def test_lean_kernel_equals_reference(name: str) -> None:
    plain, lean = make(SHAPES[name]), make(SHAPES[name], "lean")
    for seed in range(3):
        expected, found = plain.update(rows(plain, seed=seed)), lean.update(rows(lean, seed=seed))
        assert found.loss == pytest.approx(expected.loss, rel=1e-4)
        assert found.td_abs == pytest.approx(expected.td_abs, rel=1e-4, abs=1e-5)
    assert difference(plain, lean) < 5e-5
    obs = rows(plain).obs
    assert lean.q_values(obs) == pytest.approx(plain.q_values(obs), abs=1e-4)


@pytest.mark.slow
def test_compiled_kernel_equals_reference() -> None:
    plain, compiled = make(PLAIN), make(PLAIN, "compile")
    plain.update(rows(plain, 2))
    compiled.update(rows(compiled, 2))
    assert difference(plain, compiled) < 1e-4


@pytest.mark.parametrize("kernel", ["torch", "lean"])
@pytest.mark.parametrize("double", [False, True])
def test_update_follows_the_equations(kernel: str, double: bool) -> None:
    agent = make(PLAIN, kernel, double=double, tau=0.25, clip=0.0, lr=0.01)
    state, batch = agent._state, rows(agent)
    with torch.no_grad():
        # Make the two networks different.
        state.target_weights.add_(torch.randn(state.target_weights.shape, generator=torch.Generator().manual_seed(1)))
        obs, next_obs = (torch.from_numpy(each).float() / 255 for each in (batch.obs, batch.next_obs))
        target, chooser = state.target_network(next_obs), state.network(next_obs)
        best = (chooser if double else target).argmax(1)
        goal = torch.from_numpy(batch.reward) + torch.from_numpy(batch.discount) * target[torch.arange(8), best]
        error = state.network(obs)[torch.arange(8), torch.from_numpy(batch.action)] - goal
        size = error.abs()
        loss = (torch.from_numpy(batch.weight) * torch.where(size < 1, size**2 / 2, size - 0.5)).mean()
        assert (chooser.argmax(1) != target.argmax(1)).any(), (
            "otherwise double and plain Q-learning give the same target"
        )
    target_before = state.target_weights.clone()
    metrics = agent.update(batch)
    assert metrics.td_abs == pytest.approx(size.numpy(), rel=1e-4, abs=1e-5)
    assert metrics.loss[0] == pytest.approx(loss.item(), rel=1e-4)
    assert torch.allclose(state.target_weights, 0.75 * target_before + 0.25 * state.online.weights, atol=1e-6)
    assert agent.updates == 1


@pytest.mark.parametrize("kernel", ["torch", "lean"])
def test_gradient_accumulation_equals_the_whole_batch(kernel: str) -> None:
    whole, parts = make(PLAIN, kernel), make(PLAIN, kernel, accumulate=4)
    for seed in range(2):
        expected, found = whole.update(rows(whole, seed=seed)), parts.update(rows(parts, seed=seed))
        assert found.loss == pytest.approx(expected.loss, rel=1e-5)
        assert found.td_abs == pytest.approx(expected.td_abs, rel=1e-4, abs=1e-5)
    assert difference(whole, parts) < 2e-5


def test_gradient_accumulation_differs_with_batch_normalisation() -> None:
    whole, parts = make(NORMED), make(NORMED, accumulate=4)
    expected, found = whole.update(rows(whole)), parts.update(rows(parts))
    assert found.td_abs != pytest.approx(expected.td_abs, rel=1e-3), "each part is normalised by itself"


@pytest.mark.parametrize("kernel", ["torch", "lean"])
def test_target_update_includes_statistics(kernel: str) -> None:
    agent = make(NORMED, kernel, tau=0.25)
    state = agent._state
    assert all(conv.bias is None for conv in state.network.convs)
    before = {name: each.clone() for name, each in statistics(state.target_network).items()}
    assert len(before) == 4, "a mean and a variance for each convolution"
    agent.update(rows(agent))
    ours, theirs = statistics(state.network), statistics(state.target_network)
    for name, earlier in before.items():
        assert not torch.allclose(ours[name], earlier), "an update must change the statistics"
        assert torch.allclose(theirs[name], 0.75 * earlier + 0.25 * ours[name], atol=1e-6)


def test_acting_neither_changes_statistics_nor_mixes_rows() -> None:
    agent = make(NORMED, "lean")
    agent.update(rows(agent))
    before = {name: each.clone() for name, each in statistics(agent._state.network).items()}
    obs = rows(agent).obs
    together, alone = agent.q_values(obs), agent.q_values(obs[:1])
    assert together[:1] == pytest.approx(alone, abs=1e-5)
    assert all(torch.equal(each, before[name]) for name, each in statistics(agent._state.network).items())


@pytest.mark.parametrize("kernel", ["torch", "lean"])
def test_bfloat16_is_close_to_float32(kernel: str) -> None:
    full, lower = make(PLAIN, kernel), make(PLAIN, kernel, precision="bfloat16")
    exact, near = full.update(rows(full)), lower.update(rows(lower))
    assert near.loss == pytest.approx(exact.loss, rel=0.05)
    assert near.td_abs != pytest.approx(exact.td_abs, rel=1e-6), "the lower precision must be used"
    assert all(array.dtype == np.float32 for name, array in lower.tensors().items() if "weights" in name)
    assert lower.q_values(rows(lower).obs).dtype == np.float32


def test_gradient_norm_is_clipped() -> None:
    """Adam's steps do not depend on the norm, so check the first moment: after one update, a tenth of the gradient."""
    for kernel in ("torch", "lean"):
        agent = make(PLAIN, kernel, clip=1e-3)
        agent.update(rows(agent))
        assert agent._state.online.mean.norm().item() == pytest.approx(1e-4, rel=1e-2)


@pytest.mark.parametrize("name", SHAPES)
def test_loaded_learner_continues_bit_by_bit_and_with_another_kernel(name: str) -> None:
    agent = make(SHAPES[name], "lean")
    agent.update(rows(agent))
    other = make(SHAPES[name], "lean")
    other.load(agent.tensors())
    agent.update(rows(agent, seed=1))
    other.update(rows(other, seed=1))
    assert difference(agent, other) == 0
    assert other.updates == 2
    plain = make(SHAPES[name], "torch")
    plain.load(agent.tensors())
    assert difference(agent, plain) == 0


def test_mismatched_checkpoint_does_not_change_the_learner() -> None:
    agent, other = make(PLAIN), make(NORMED)
    before = agent.tensors()
    with pytest.raises(HotloopError):
        agent.load(other.tensors())
    assert all((array == before[name]).all() for name, array in agent.tensors().items())


def test_phases_are_timed_in_order() -> None:
    agent = make(PLAIN, "lean")
    timed: list[str] = []

    class Timer:
        def __init__(self, name: str) -> None:
            timed.append(name)

        def __enter__(self) -> None:
            pass

        def __exit__(self, *error: object) -> None:
            pass

    agent.update(rows(agent), Timer)
    assert tuple(timed) == PHASES


@pytest.mark.parametrize("kernel", ["torch", "lean"])
def test_only_one_part_of_a_batch_is_converted_to_floats_at_a_time(
    kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, sizes = make(PLAIN, kernel, accumulate=4), []
    convert = agent._kernel._input  # type: ignore[attr-defined]
    monkeypatch.setattr(agent._kernel, "_input", lambda obs: (sizes.append(len(obs)), convert(obs))[1])
    agent.update(rows(agent))
    assert sizes == [2] * 8, "4 parts of 2 rows, each with its next observations"


def test_kernel_that_cannot_be_compiled_is_left_out_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def update(self: object, rows: object, timed: object) -> object:
        raise RuntimeError("No working C++ compiler\n  was found")

    monkeypatch.setattr(torch_kernels.Compiled, "__init__", torch_kernels.Lean.__init__)
    monkeypatch.setattr(torch_kernels.Compiled, "update", update)
    agent = make(PLAIN, "torch")
    choice = choose_kernel(agent, 1, candidates=["torch", "lean", "compile"])
    assert choice.kernel in ("torch", "lean")
    assert set(choice.update_s) == {"torch", "lean"}
    assert choice.left_out == {"compile": "No working C++ compiler was found"}
    with pytest.raises(HotloopError, match=r"kernel compile cannot be used here \(No working C\+\+ compiler"):
        choose_kernel(agent, 1, candidates=["compile"])
    monkeypatch.setattr(torch_kernels.Lean, "update", update)
    with pytest.raises(RuntimeError, match="compiler"):  # for any other kernel it is a bug
        choose_kernel(agent, 1)


def test_choosing_a_kernel_does_not_change_the_learner() -> None:
    agent = make(PLAIN, "torch")
    before = agent.tensors()
    choice = choose_kernel(agent, 1)
    assert set(choice.update_s) == {"torch", "lean"}, "compiling takes too long to be measured by default"
    assert all((array == before[name]).all() for name, array in agent.tensors().items())


def test_it_learns_the_value_of_a_frame() -> None:
    """Episodes of one step, two kinds of frame: the right action for each gives a reward of 1."""
    shape = FrameQShape((2, 36, 36), 2, convs=((4, 8, 4), (8, 4, 2)), hidden=16)
    agent = FrameDQN(FrameDQNConfig(shape, batch=32, lr=3e-3, tau=0.1), RULE, seed=0, kernel="lean")
    rng = np.random.default_rng(0)
    for _ in range(150):
        kind, action = rng.integers(2, size=(2, 32))
        obs = np.where(kind[:, None, None, None] > 0, 200, 30).astype(np.uint8) * np.ones((1, 2, 36, 36), np.uint8)
        reward = (kind == action).astype(np.float32)
        agent.update(Transitions(obs, action, reward, obs, np.zeros(32, np.float32)))
    dark, bright = agent.q_values(np.stack([np.full((2, 36, 36), 30, np.uint8), np.full((2, 36, 36), 200, np.uint8)]))
    assert [*dark, *bright] == pytest.approx([1, 0, 0, 1], abs=0.25)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: FrameQShape((3, 36), 5), "observation shape"),  # type: ignore[arg-type]
        (lambda: FrameQShape((3, 36, 30), 5), "observation shape"),
        (lambda: FrameQShape((3, 36, 36), 1), "actions is 1"),
        (lambda: FrameQShape((3, 6, 6), 5), "too small"),
        (lambda: FrameQShape((3, 36, 36), 5, hidden=0), "hidden is 0"),
        (lambda: FrameDQNConfig(PLAIN, accumulate=3), "divides the batch"),
        (lambda: FrameDQNConfig(PLAIN, tau=2), "tau is 2"),
        (lambda: make(PLAIN, "numba"), "no kernel 'numba'"),
        (lambda: make(PLAIN, precision="float16"), "for CUDA"),
        (lambda: make(PLAIN).update(rows(make(PLAIN, batch=3))), "multiple of the batch size"),
        (lambda: make(PLAIN).greedy(np.zeros((1, 3, 36, 36), np.float32)), "uint8"),
        (lambda: Exploration(start=2.0), "start is 2"),
        (lambda: Exploration(hold=0), "hold is 0"),
    ],
)
def test_invalid_arguments_are_reported(wrong: object, message: str) -> None:
    with pytest.raises(HotloopError, match=message):
        wrong()  # type: ignore[operator]


def test_epsilon_falls_linearly() -> None:
    exploration = Exploration(start=1.0, end=0.2, steps=100)
    assert [exploration.epsilon(n) for n in (0, 50, 100, 1000)] == pytest.approx([1.0, 0.6, 0.2, 0.2])


def test_policy_uses_the_loaded_weights() -> None:
    agent = make(NORMED, "lean")
    agent.update(rows(agent))
    policy = FramePolicy(NORMED, Exploration(start=0.0, end=0.0))
    obs, rng = rows(agent, 4).obs, np.random.default_rng(0)
    arrays = {name: each.numpy().copy() for name, each in agent.weights().items()}
    for array in arrays.values():
        array.flags.writeable = False  # like shared memory
    policy.load(arrays, 7)
    assert policy.version == 7
    assert (policy.act(obs, 0, rng) == agent.greedy(obs)).all()
    values = policy._forward.values(policy._network, policy._forward.input(obs)).numpy()
    assert values == pytest.approx(agent.q_values(obs), abs=1e-6)


def test_random_actions_are_held() -> None:
    policy = FramePolicy(PLAIN, pickle.loads(pickle.dumps(Exploration(start=1.0, end=1.0, hold=4))))
    rng, obs = np.random.default_rng(0), np.zeros((2, 3, 36, 36), np.uint8)
    played = np.array([policy.act(obs, step, rng) for step in range(4000)])
    assert (np.bincount(played.ravel(), minlength=5) > 1000).all(), "all actions are equally likely"
    for lane in played.T:
        stays = (lane[1:] == lane[:-1]).mean()
        # An action is held for 2.5 steps on average; then one in five new actions is the same.
        assert stays == pytest.approx(1 - (1 / 2.5) * (4 / 5), abs=0.03)


def test_amount_of_random_numbers_does_not_depend_on_epsilon() -> None:
    obs = np.zeros((1, 3, 36, 36), np.uint8)
    after = []
    for epsilon in (0.0, 0.5, 1.0):
        rng = np.random.default_rng(5)
        policy = FramePolicy(PLAIN, Exploration(start=epsilon, end=epsilon))
        for step in range(10):
            policy.act(obs, step, rng)
        after.append(rng.random())
    assert after[0] == after[1] == after[2]
