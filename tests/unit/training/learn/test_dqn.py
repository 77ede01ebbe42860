"""The DQN learner: all kernels agree, checkpoints restore it, invalid arguments are reported."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch._inductor.config

from hotloop.errors import HotloopError
from hotloop.training.learn import DQN, DQNConfig, QRule, QShape, Transitions, choose_kernel
from hotloop.training.learn.dqn.learner import random_dqn_batch
from hotloop.training.pipelines.dqn_snake import move_target, q_loss

RULE = QRule(q_loss, move_target, numba=True)

SMALL = DQNConfig(QShape((5,), 3, hidden=(16, 8)), batch=8, target_every=3)


def batches(config: DQNConfig, calls: int, updates: int = 2, seed: int = 0) -> list[Transitions]:
    rng = np.random.default_rng(seed)
    made = [random_dqn_batch(config, updates, rng) for _ in range(calls)]
    return [batch._replace(weight=rng.random(len(batch.reward), dtype=np.float32)) for batch in made]


def assert_close(a: dict[str, np.ndarray], b: dict[str, np.ndarray], atol: float) -> None:
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_allclose(a[name], b[name], atol=atol, rtol=0, err_msg=name)


def assert_identical(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


SHAPES = [
    {"dueling": dueling, "noisy": noisy, "atoms": atoms, "v_min": -3.0, "v_max": 3.0}
    for dueling, noisy, atoms in itertools.product([False, True], [False, True], [1, 7])
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("double", [False, True])
def test_all_kernels_give_the_same_weights(shape: dict, double: bool) -> None:
    config = replace(SMALL, shape=replace(SMALL.shape, **shape), double=double)
    given = batches(config, calls=5)
    reference = DQN(config, RULE, seed=3, kernel="torch")
    expected = [reference.update(batch) for batch in given]
    others = [name for name in DQN(config, RULE).supported_kernels() if name not in ("torch", "compile")]
    assert others
    for kernel in others:
        learner = DQN(config, RULE, seed=3, kernel=kernel)
        for batch, wanted in zip(given, expected, strict=True):
            found = learner.update(batch)
            np.testing.assert_allclose(found.td_abs, wanted.td_abs, atol=3e-6)
            np.testing.assert_allclose(found.loss, wanted.loss, atol=3e-6)
        assert learner.updates == reference.updates == 10
        assert_close(learner.tensors(), reference.tensors(), atol=1e-6)


@pytest.mark.skipif(" " in torch.__file__, reason="torch's compiler cannot link against a torch in a path with a space")
def test_the_compiled_kernel_gives_the_same_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    given = batches(SMALL, calls=2)
    # Compile in this process: inductor's worker processes would outlive the test.
    monkeypatch.setattr(torch._inductor.config, "compile_threads", 1)
    plain, compiled = DQN(SMALL, RULE, kernel="torch"), DQN(SMALL, RULE, kernel="compile")
    for batch in given:
        plain.update(batch)
        compiled.update(batch)
    assert_close(compiled.tensors(), plain.tensors(), atol=1e-6)


def test_grid_observations() -> None:
    config = replace(SMALL, shape=QShape((6, 6, 3), 4, hidden=(16,)))
    assert DQN(config, RULE).supported_kernels() == ["torch", "torch-fused", "compile"]
    learner, fused = DQN(config, RULE), DQN(config, RULE, kernel="torch-fused")
    for batch in batches(config, calls=2):
        learner.update(batch)
        fused.update(batch)
    assert_close(fused.tensors(), learner.tensors(), atol=1e-6)


@pytest.mark.parametrize("kernel", ["torch", "torch-fused", "numba"])
def test_several_updates_in_one_call_equal_single_updates(kernel: str) -> None:
    batch = batches(SMALL, calls=1, updates=4)[0]
    together, apart = DQN(SMALL, RULE, kernel=kernel), DQN(SMALL, RULE, kernel=kernel)
    all_at_once = together.update(batch)
    one_by_one = [
        apart.update(Transitions(*(None if part is None else part[begin : begin + 8] for part in batch)))
        for begin in range(0, 32, 8)
    ]
    assert_identical(together.tensors(), apart.tensors())
    np.testing.assert_array_equal(all_at_once.td_abs, np.concatenate([done.td_abs for done in one_by_one]))


@pytest.mark.parametrize("kernel", ["torch", "torch-fused", "numba"])
def test_the_target_moves_only_when_it_is_due(kernel: str) -> None:
    learner = DQN(SMALL, RULE, kernel=kernel)
    first = learner.tensors()
    target, online = "target.weights.top.weight", "online.weights.top.weight"
    assert np.array_equal(first[target], first[online])
    learner.update(batches(SMALL, calls=1, updates=2)[0])
    after_two = learner.tensors()
    assert np.array_equal(after_two[target], first[target]) and not np.array_equal(after_two[online], first[online])
    learner.update(batches(SMALL, calls=1, updates=1)[0])
    after_three = learner.tensors()
    np.testing.assert_allclose(after_three[target], after_three[online], atol=1e-7)


@pytest.mark.parametrize("kernel", ["torch", "numba"])
def test_soft_target_moves_by_tau(kernel: str) -> None:
    config = replace(SMALL, target_every=1, tau=0.25)
    learner = DQN(config, RULE, kernel=kernel)
    before = learner.tensors()["target.weights.top.weight"]
    learner.update(batches(config, calls=1, updates=1)[0])
    after = learner.tensors()
    expected = 0.75 * before + 0.25 * after["online.weights.top.weight"]
    np.testing.assert_allclose(after["target.weights.top.weight"], expected, atol=1e-7)


@pytest.mark.parametrize("kernel", ["torch", "torch-fused", "numba"])
def test_loaded_learner_continues_bit_by_bit(kernel: str) -> None:
    given = batches(SMALL, calls=6)
    original = DQN(SMALL, RULE, seed=1, kernel=kernel)
    for batch in given[:3]:
        original.update(batch)
    resumed = DQN(SMALL, RULE, seed=2, kernel=kernel)
    resumed.load(original.tensors())
    for batch in given[3:]:
        original.update(batch)
        resumed.update(batch)
    assert_identical(resumed.tensors(), original.tensors())


def test_loaded_noisy_learner_draws_the_same_noise() -> None:
    config = replace(SMALL, shape=replace(SMALL.shape, noisy=True))
    original, resumed = DQN(config, RULE, seed=1), DQN(config, RULE, seed=2)
    obs = np.ones((4, 5), np.float32)
    original.act(obs, 0.0, np.random.default_rng(0))
    resumed.load(original.tensors())
    for batch in batches(config, calls=2):
        original.update(batch)
        resumed.update(batch)
    assert_identical(resumed.tensors(), original.tensors())


def test_checkpoint_can_be_continued_by_another_kernel() -> None:
    given = batches(SMALL, calls=4)
    whole, switched, loaded = DQN(SMALL, RULE), DQN(SMALL, RULE), DQN(SMALL, RULE, seed=9, kernel="torch-fused")
    for batch in given[:2]:
        whole.update(batch)
        switched.update(batch)
    switched.use("numba")
    loaded.load(whole.tensors())
    for batch in given[2:]:
        for learner in (whole, switched, loaded):
            learner.update(batch)
    assert_close(switched.tensors(), whole.tensors(), atol=1e-6)
    assert_close(loaded.tensors(), whole.tensors(), atol=1e-6)


@pytest.mark.parametrize("kernel", ["torch", "numba"])
def test_actions_are_greedy_or_random(kernel: str) -> None:
    learner = DQN(SMALL, RULE, kernel=kernel)
    obs = np.random.default_rng(0).standard_normal((100, 5), dtype=np.float32)
    best = learner.q_values(obs).argmax(axis=1)
    assert np.array_equal(learner.greedy(obs), best)
    assert np.array_equal(learner.act(obs, 0.0, np.random.default_rng(1)), best)
    random_actions = learner.act(obs, 1.0, np.random.default_rng(1))
    assert set(random_actions) == {0, 1, 2} and random_actions.dtype == np.int64
    assert np.array_equal(random_actions, learner.act(obs, 1.0, np.random.default_rng(1)))


def test_noise_changes_actions_but_not_greedy_ones() -> None:
    learner = DQN(replace(SMALL, shape=replace(SMALL.shape, noisy=True)), RULE)
    obs = np.random.default_rng(0).standard_normal((500, 5), dtype=np.float32)
    rng = np.random.default_rng(1)
    assert not np.array_equal(learner.act(obs, 0.0, rng), learner.act(obs, 0.0, rng))
    assert np.array_equal(learner.greedy(obs), learner.greedy(obs))


def test_global_random_generators_are_not_used() -> None:
    before, numpy_before = torch.random.get_rng_state(), np.random.get_state()[1].copy()
    learner = DQN(replace(SMALL, shape=replace(SMALL.shape, noisy=True)), RULE, seed=5)
    learner.update(batches(learner.config, calls=1)[0])
    assert torch.equal(before, torch.random.get_rng_state())
    assert np.array_equal(numpy_before, np.random.get_state()[1])


def test_it_learns_a_bandit() -> None:
    config = replace(SMALL, lr=1e-2)
    for kernel in ("torch-fused", "numba"):
        learner = DQN(config, RULE, kernel=kernel)
        rng = np.random.default_rng(0)
        for _ in range(40):
            obs = rng.standard_normal((40, 5), dtype=np.float32)
            action = rng.integers(3, size=40)
            reward = np.where(action == 0, 0.0, np.where(action == 1, obs[:, 0], -obs[:, 0])).astype(np.float32)
            learner.update(Transitions(obs, action, reward, obs, np.zeros(40, np.float32)))
        tests = np.zeros((2, 5), np.float32)
        tests[:, 0] = [1.5, -1.5]
        assert learner.greedy(tests).tolist() == [1, 2]
        np.testing.assert_allclose(learner.q_values(tests)[:, 1], [1.5, -1.5], atol=0.5)


def test_inactive_inputs_leave_no_subnormal_moments() -> None:
    # If an input becomes zero, the moments of its weights decay for ever.
    learner = DQN(SMALL, RULE, kernel="numba")
    learner.update(batches(SMALL, calls=1)[0])
    silent = batches(SMALL, calls=1, updates=2000)[0]
    silent.obs[:, 0] = 0
    silent.next_obs[:, 0] = 0
    learner.update(silent)
    moments = [part for name, part in learner.tensors().items() if "adam" in name]
    tiny = np.finfo(np.float32).tiny
    assert all(np.all((part == 0) | (np.abs(part) >= tiny)) for part in moments)
    assert np.all(learner.tensors()["online.adam_mean.body.0.weight"][:, 0] == 0)


def test_choosing_a_kernel_does_not_change_the_learner() -> None:
    learner = DQN(SMALL, RULE)
    learner.update(batches(SMALL, calls=1)[0])
    before = learner.tensors()
    choice = choose_kernel(learner, updates_per_call=2)
    assert choice.update_s.keys() == {"torch", "torch-fused", "numba"}
    assert choice.kernel == min(choice.update_s, key=lambda name: choice.update_s[name])
    assert all(seconds > 0 for seconds in choice.update_s.values())
    assert learner.kernel == "torch"
    assert_identical(learner.tensors(), before)


def test_invalid_arguments_are_reported() -> None:
    with pytest.raises(HotloopError, match="no kernel 'cuda'"):
        DQN(SMALL, RULE, kernel="cuda")
    grid = replace(SMALL, shape=QShape((6, 6, 3), 4))
    with pytest.raises(HotloopError, match="'numba' kernel cannot run this network"):
        DQN(grid, RULE, kernel="numba")
    learner = DQN(SMALL, RULE)
    with pytest.raises(HotloopError, match="got 9 rows"):
        learner.update(Transitions(*(part[:9] for part in batches(SMALL, calls=1)[0])))
    with pytest.raises(HotloopError, match="tau is 0"):
        replace(SMALL, tau=0)
    with pytest.raises(HotloopError, match="batch is 0"):
        replace(SMALL, batch=0)


@pytest.mark.parametrize("kernel", ["torch", "torch-fused", "numba"])
@pytest.mark.parametrize("shape", [(16, 4), (16, 6), (5,), (16, 5, 1)])
def test_observations_of_another_shape_are_rejected(kernel: str, shape: tuple[int, ...]) -> None:
    learner, obs, rng = DQN(SMALL, RULE, kernel=kernel), np.zeros(shape, np.float32), np.random.default_rng(0)
    before, batch = learner.tensors(), batches(SMALL, calls=1)[0]
    message = r"obs has shape .*: the network was made for observations of \(5,\); give \(N, 5\)"
    updates = [lambda x: learner.update(batch._replace(obs=x)), lambda x: learner.update(batch._replace(next_obs=x))]
    for call in (learner.q_values, learner.greedy, lambda x: learner.act(x, 0.5, rng), *updates):
        with pytest.raises(HotloopError, match=message):
            call(obs)
    assert rng.random() == np.random.default_rng(0).random()
    assert_identical(learner.tensors(), before)


def test_mismatched_checkpoint_does_not_change_the_learner() -> None:
    learner = DQN(SMALL, RULE)
    before = learner.tensors()
    missing = {name: part for name, part in before.items() if name != "online.adam_mean.top.bias"}
    with pytest.raises(HotloopError, match=r"online.adam_mean.top.bias"):
        learner.load({**missing, "updates": np.array(99)})
    other = DQN(replace(SMALL, shape=replace(SMALL.shape, hidden=(16, 9))), RULE).tensors()
    with pytest.raises(HotloopError, match=r"for 'online.weights.top.weight', not float32 \(8, 16\)"):
        learner.load(other)
    assert_identical(learner.tensors(), before)
