"""SAC against values computed by hand, and its kernels against the reference."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.distributions import Normal, TanhTransform, TransformedDistribution

from hotloop.errors import HotloopError
from hotloop.training.learn import SAC, SACConfig, SACRule, SACShape, Transitions
from hotloop.training.learn.kernel_choice import choose_kernel
from hotloop.training.learn.sac.learner import random_sac_batch
from hotloop.training.learn.sac.networks import squash
from hotloop.training.learn.sac.state import PHASES
from hotloop.training.learn.sac.torch_kernels import Plain, shift_frames
from hotloop.training.pipelines.sac_carracing import (
    actor_loss,
    critic_loss,
    critic_target,
    move_target,
    temperature_gradient,
)

RULE = SACRule(critic_target, critic_loss, actor_loss, temperature_gradient, move_target)

PIXELS = SACShape((4, 36, 36), 2, convs=((4, 8, 4), (8, 4, 2)), hidden=(16,))
SHARED = SACShape((3, 36, 36), 2, convs=((4, 8, 4), (8, 4, 2)), hidden=(16, 16), shared=True, latent=6)
NUMBERS = SACShape((5,), 3, hidden=(16, 16))
SHAPES = {"pixels": PIXELS, "shared": SHARED, "numbers": NUMBERS}


def make(shape: SACShape, kernel: str = "torch", **more: object) -> SAC:
    shift = {"shift": 2} if shape.shared else {}
    return SAC(SACConfig(shape, batch=8, **(shift | more)), RULE, seed=3, kernel=kernel)  # type: ignore[arg-type]


def steps(agent: SAC, updates: int = 1, seed: int = 0) -> Transitions:
    return random_sac_batch(agent.config, updates, np.random.default_rng(seed))


def difference(ours: SAC, theirs: SAC) -> float:
    a, b = ours.tensors(), theirs.tensors()
    assert a.keys() == b.keys()
    return max(np.abs(a[name] - b[name]).max() for name in a if a[name].dtype == np.float32)


def test_squashed_density_equals_torchs_transformed_distribution() -> None:
    generator = torch.Generator().manual_seed(0)
    mean, log_std, noise = torch.randn(3, 64, 2, generator=generator, dtype=torch.float64)
    action, log_prob = squash(mean, log_std, noise)
    known = TransformedDistribution(Normal(mean, log_std.exp()), [TanhTransform(cache_size=1)])
    assert torch.allclose(action, torch.tanh(mean + log_std.exp() * noise))
    assert torch.allclose(log_prob, known.log_prob(action.clamp(-1 + 1e-12, 1 - 1e-12)).sum(1), atol=1e-4)


def test_squashed_density_is_accurate_where_tanh_is_one() -> None:
    zero = torch.zeros(1, 1)
    _, log_prob = squash(torch.full((1, 1), 30.0), zero, zero)
    # log N(30; 30, 1) - log(1 - tanh² 30), and 1 - tanh² u is 4 e^-2u there.
    assert log_prob.item() == pytest.approx(-0.5 * math.log(2 * math.pi) - math.log(4) + 60, rel=1e-6)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("more", [{}, {"batched": True}, {"channels_last": False}], ids=str)
def test_lean_kernel_equals_reference(name: str, more: dict[str, bool]) -> None:
    plain, lean = make(SHAPES[name]), make(SHAPES[name], "lean", **more)
    expected, found = plain.update(steps(plain)), lean.update(steps(lean))
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-6)
    # Adam's first step is the sign of the gradient times lr: a gradient close to 0 may have either sign.
    assert difference(plain, lean) < 2e-5
    assert plain.greedy(steps(plain).obs) == pytest.approx(lean.greedy(steps(lean).obs), abs=1e-5)


def test_bfloat16_is_close_to_float32() -> None:
    plain, lower = make(PIXELS), make(PIXELS, "lean", precision="bfloat16")
    exact, near = plain.update(steps(plain)), lower.update(steps(lower))
    assert near.critic_loss == pytest.approx(exact.critic_loss, rel=0.05)
    assert near.critic_loss != pytest.approx(exact.critic_loss, rel=1e-6), "the lower precision must be used"
    assert all(array.dtype == np.float32 for name, array in lower.tensors().items() if "weights" in name)


@pytest.mark.slow
def test_compiled_kernel_equals_reference() -> None:
    plain, compiled = make(PIXELS), make(PIXELS, "lean", compiled=True)
    plain.update(steps(plain, 2))
    compiled.update(steps(compiled, 2))
    assert difference(plain, compiled) < 1e-4


@pytest.mark.parametrize("kernel", ["torch", "lean"])
def test_update_follows_the_equations(kernel: str) -> None:
    agent = make(NUMBERS, kernel, alpha=0.5, lr=0.01, tau=0.25)
    batch, state = steps(agent), agent._state
    noise = np.random.Generator(np.random.PCG64(3))
    next_noise, own_noise = (torch.from_numpy(noise.standard_normal((8, 3), dtype=np.float32)) for _ in range(2))
    obs, action, reward, next_obs, discount = map(torch.from_numpy, batch[:5])
    target_before = state.target_weights.clone()
    with torch.no_grad():
        next_action, next_log_prob = squash(*state.policy(next_obs), next_noise)
        next_q = torch.min(*(body(next_obs, next_action)[:, 0] for body in state.target.bodies))
        goal = reward + discount * (next_q - 0.5 * next_log_prob)
        q = [body(obs, action)[:, 0] for body in state.critics.bodies]
        _, log_prob = squash(*state.policy(obs), own_noise)
    metrics = agent.update(batch)
    expected = sum(((each - goal) ** 2).mean() for each in q)
    assert metrics.critic_loss[0] == pytest.approx(float(expected), rel=1e-5)
    assert metrics.alpha[0] == pytest.approx(0.5)
    assert metrics.entropy[0] == pytest.approx(-log_prob.mean().item(), rel=1e-5)
    assert metrics.q[0] == pytest.approx(torch.stack(q).mean().item(), rel=1e-5)
    # The first step of Adam is lr along the sign: the entropy is above its target, -3, so α falls.
    assert -log_prob.mean() > -3
    assert state.temperature[0].item() == pytest.approx(math.log(0.5) - 0.01, rel=1e-5)
    moved_target = 0.75 * target_before + 0.25 * state.critic.weights
    assert torch.allclose(state.target_weights, moved_target, atol=1e-6)


def test_temperature_is_updated_by_adam() -> None:
    agent = make(NUMBERS, lr=0.01)
    kernel, state = Plain(agent._state), agent._state
    log_alpha = torch.zeros((), requires_grad=True)
    adam = torch.optim.Adam([log_alpha], lr=0.01)
    generator = torch.Generator().manual_seed(1)
    for update in range(5):
        log_prob = torch.randn(8, generator=generator) + 2
        state.updates = update
        kernel._update_temperature(log_prob)
        adam.zero_grad()
        (-log_alpha * (log_prob - 3).mean()).backward()
        adam.step()
        assert state.temperature[0].item() == pytest.approx(log_alpha.item(), rel=1e-5)


def test_actor_loss_does_not_train_a_shared_encoder() -> None:
    agent = make(SHARED, "lean")
    assert agent._state.policy.eye is None
    assert len(agent._state.target.eyes) == 0, "a shared encoder has no target"
    kernel, state = agent._kernel, agent._state
    before = state.critic.weights.clone()
    features = [torch.rand(8, SHARED.features)] * 2
    loss, _ = kernel.actor_loss(torch.rand(8, 48, 9, 9), features, torch.randn(8, 2), torch.tensor(0.1))  # type: ignore[attr-defined]
    kernel._step(kernel.actor_optimiser, loss)  # type: ignore[attr-defined]
    assert torch.equal(state.critic.weights, before)
    assert not any(parameter.grad.any() for parameter in state.critics.parameters() if parameter.grad is not None)


@pytest.mark.parametrize("name", SHAPES)
def test_loaded_learner_continues_bit_by_bit_and_with_another_kernel(name: str) -> None:
    agent = make(SHAPES[name], "lean")
    agent.update(steps(agent))
    saved, other = agent.tensors(), make(SHAPES[name], "lean")
    other.load(saved)
    obs = steps(agent).obs
    assert (agent.act(obs) == other.act(obs)).all()
    agent.update(steps(agent, seed=1))
    other.update(steps(other, seed=1))
    assert difference(agent, other) == 0
    other.use("torch")
    other.update(steps(other, seed=2))
    agent.update(steps(agent, seed=2))
    assert difference(agent, other) < 1e-4


def test_mismatched_checkpoint_does_not_change_the_learner() -> None:
    agent, before = make(PIXELS, "lean"), make(PIXELS, "lean")
    for wrong in (make(NUMBERS).tensors(), make(SHARED).tensors(), {}):
        with pytest.raises(HotloopError, match=r"checkpoint|shape"):
            agent.load(wrong)
        assert difference(agent, before) == 0


def test_rows_must_fill_batches() -> None:
    agent = make(NUMBERS)
    with pytest.raises(HotloopError, match="multiple of the batch size, 8"):
        agent.update(random_sac_batch(SACConfig(NUMBERS, batch=5), 1, np.random.default_rng(0)))


def test_invalid_arguments_are_reported() -> None:
    for wrong, message in (
        ({"observation": (4, 36)}, "observation shape"),
        ({"observation": (4, 8, 8)}, "too small"),
        ({"hidden": ()}, "hidden is"),
        ({"actions": 0}, "actions is 0"),
    ):
        with pytest.raises(HotloopError, match=message):
            SACShape(**({"observation": (4, 36, 36), "actions": 2} | wrong))  # type: ignore[arg-type]
    for wrong, message in (({"tau": 2.0}, "tau is 2"), ({"lr": 0}, "lr is 0"), ({"shift": 2}, "shift is 2")):
        with pytest.raises(HotloopError, match=message):
            SACConfig(NUMBERS, **wrong)  # type: ignore[arg-type]
    with pytest.raises(HotloopError, match="no kernel 'numba'"):
        make(NUMBERS, "numba")


def test_convolution_sizes_of_the_default_network() -> None:
    assert SACShape((4, 96, 96), 2).sides == [96, 23, 10, 8]
    assert SACShape((4, 96, 96), 2).features == 4096


def test_phases_are_timed_in_order() -> None:
    timed: list[str] = []

    class Timer:
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            timed.append(self.name)

        def __exit__(self, *_: object) -> None:
            pass

    agent = make(PIXELS, "lean")
    agent.update(steps(agent, 2), Timer)
    assert [name for name in timed if name in PHASES] == [*PHASES, *PHASES]
    assert {name for name in timed if name not in PHASES} == {"conv1", "conv2", "fc", "backward", "adam"}


def test_shifting_a_frame_repeats_its_edge() -> None:
    frame = torch.arange(9.0).reshape(1, 1, 3, 3)
    assert shift_frames(frame, torch.tensor([[1, -1]]))[0, 0].tolist() == [[3, 3, 4], [6, 6, 7], [6, 6, 7]]


def test_choosing_a_kernel_does_not_change_the_learner() -> None:
    agent, before = make(PIXELS, "lean"), make(PIXELS, "lean")
    choice = choose_kernel(agent, 1)
    assert choice.kernel in choice.update_s
    assert set(choice.update_s) == {"torch", "lean"}
    assert difference(agent, before) == 0


@pytest.mark.parametrize("more", [{"precision": "bfloat16"}, {"batched": True}, {"compiled": True}], ids=str)
def test_reference_kernel_rejects_options_of_the_lean_kernel(more: dict[str, object]) -> None:
    (option,) = more
    config = SACConfig(NUMBERS, **more)  # type: ignore[arg-type]
    assert SAC(config, RULE).supported_kernels() == ["lean"]
    agent = SAC(config, RULE, kernel="lean")
    with pytest.raises(HotloopError, match=f"the kernel 'torch' of SAC cannot run with {option}: use 'lean'"):
        agent.use("torch")
    assert agent.kernel == "lean"
    assert SAC(SACConfig(NUMBERS), RULE).supported_kernels() == ["torch", "lean"]


def test_choice_considers_only_kernels_that_support_the_options() -> None:
    assert set(choose_kernel(make(NUMBERS, "lean", precision="bfloat16"), 1).update_s) == {"lean"}
