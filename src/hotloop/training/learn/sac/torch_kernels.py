"""Two versions of SAC's update in torch: the reference, and one that does the same maths with less work.

`Plain` is the reference. `Lean` skips gradients that nothing uses (in the actor's loss, those of the critics and of
their features), folds the first convolution, uses the channels-last layout, and does Adam and the soft update in one
call each.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as f

from hotloop.training.learn.flat_params import FlatNetwork
from hotloop.training.learn.kernels.frame_input import fold_frames, fold_of, fold_weights
from hotloop.training.learn.learner import TimePhase
from hotloop.training.learn.sac.networks import TWINS, Body, Critics, FrameEncoder, squash
from hotloop.training.learn.sac.state import ADAM_EPS, PHASES, Noise, SACState

Rows = tuple[NDArray, ...]


class Plain:
    """The reference: one operation after the other."""

    FUSED = False
    """Whether Adam updates all parameters in one call."""

    def __init__(self, state: SACState) -> None:
        self.state = state
        self.actor_optimiser = self._make_optimiser(state.actor)
        self.critic_optimiser = self._make_optimiser(state.critic)
        self._timed: TimePhase = nullcontext

    def update(self, rows: Rows, noise: Noise, timed: TimePhase) -> Tensor:
        """Do one update of the state, in place; return the five numbers of `SACUpdated`, `[5]`.

        The rows are observations, actions, rewards, next observations and discounts of B transitions. `timed` times the
        phases and their parts: convolutions, linear layers, backward pass, Adam.
        """
        state, self._timed = self.state, timed
        with timed("input"):
            obs, next_obs, action, reward, discount = self._tensors(rows, noise)
            alpha = state.temperature[0].exp()
        with timed("target"):
            goal = self.goal(next_obs, reward, discount, noise.next_action, alpha)
        with timed("critics"):
            critic_loss, q, features = self.critic_loss(obs, action, goal)
            self._step(self.critic_optimiser, critic_loss)
        with timed("actor"):
            actor_loss, log_prob = self.actor_loss(obs, features, noise.action, alpha)
            self._step(self.actor_optimiser, actor_loss)
        with timed("temperature"):
            self._update_temperature(log_prob)
        with timed("soft update"):
            self._update_target()
            state.updates += 1
        return torch.stack([critic_loss.detach(), actor_loss.detach(), alpha, -log_prob.mean(), q.mean()])

    @torch.no_grad()
    def policy(self, obs: NDArray) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation of the actions for observations `[N, ...]`."""
        self._timed = nullcontext
        x = self._input(obs, None)
        return self.state.policy(self._policy_features(x))

    @torch.no_grad()
    def goal(self, next_obs: Tensor, reward: Tensor, discount: Tensor, noise: Tensor, alpha: Tensor) -> Tensor:
        """Target of the critics, `[B]`."""
        state = self.state
        features = self._policy_features(next_obs)
        next_action, log_prob = self._sample_action(features, noise)
        shared = state.config.shape.shared
        critic_features = [features] * TWINS if shared else self._critic_features(state.target, next_obs)
        next_q = self._values(state.target, critic_features, next_action)
        return state.rule.critic_target(next_q, log_prob, reward, discount, alpha)

    def critic_loss(self, obs: Tensor, action: Tensor, goal: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Loss of the critics; also the values `[2, B]` and the features."""
        features = self._critic_features(self.state.critics, obs)
        q = self._values(self.state.critics, features, action)
        return self.state.rule.critic_loss(q, goal), q.detach(), [each.detach() for each in features]

    def actor_loss(self, obs: Tensor, features: list[Tensor], noise: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """Loss of the policy; also the log densities `[B]`.

        A shared encoder is not trained here: the policy uses the critics' features from before their update.
        """
        state = self.state
        if state.config.shape.shared:
            policy_features = features[0]
        else:
            policy_features, features = self._policy_features(obs), self._judging_features(obs)
        action, log_prob = self._sample_action(policy_features, noise)
        return state.rule.actor_loss(self._judged(features, action), log_prob, alpha), log_prob.detach()

    def _judging_features(self, obs: Tensor) -> list[Tensor]:
        """Input of the critics that judge the policy's actions."""
        return self._critic_features(self.state.critics, obs)

    def _judged(self, features: list[Tensor], action: Tensor) -> Tensor:
        """Values `[2, B]` of the policy's actions."""
        return self._values(self.state.critics, features, action)

    def _tensors(self, rows: Rows, noise: Noise) -> tuple[Tensor, ...]:
        obs, action, reward, next_obs, discount = rows
        shift, next_shift = (None, None) if noise.shift is None else noise.shift
        others = [
            torch.from_numpy(np.ascontiguousarray(each)).to(self.state.device) for each in (action, reward, discount)
        ]
        return (self._input(obs, shift), self._input(next_obs, next_shift), *others)

    def _input(self, obs: NDArray, shift: NDArray[np.int64] | None) -> Tensor:
        x = torch.from_numpy(np.ascontiguousarray(obs)).to(self.state.device)
        if not self.state.config.shape.has_frames:
            return x
        x = x.float() / 255
        return x if shift is None else shift_frames(x, torch.from_numpy(shift).to(x.device))

    def _encode(self, encoder: FrameEncoder, x: Tensor) -> Tensor:
        for k, conv in enumerate(encoder.convs):
            with self._timed(f"conv{k + 1}"):
                x = conv(x).relu()
        return x.flatten(1)

    def _sample_action(self, features: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        with self._timed("fc"):
            mean, log_std = self.state.policy(features)
            return squash(mean, log_std, noise)

    def _policy_features(self, x: Tensor) -> Tensor:
        shape, state = self.state.config.shape, self.state
        if not shape.has_frames:
            return x
        encoder = state.critics.eyes[0] if shape.shared else state.policy.eye
        assert isinstance(encoder, FrameEncoder)
        return self._encode(encoder, x)

    def _critic_features(self, critics: Critics, x: Tensor) -> list[Tensor]:
        """Input of each critic's layers for observations, `[B, features]` each."""
        if not critics.eyes:
            return [x] * TWINS
        features = [self._encode(encoder, x) for encoder in critics.eyes]  # type: ignore[arg-type]
        return features * TWINS if len(features) == 1 else features

    def _values(self, critics: Critics, features: Sequence[Tensor], action: Tensor) -> Tensor:
        with self._timed("fc"):
            return critics(features, action)

    def _make_optimiser(self, network: FlatNetwork) -> torch.optim.Adam:
        return network.adam(self.state.config.lr, ADAM_EPS, self.state.updates, self.FUSED)

    def _step(self, optimiser: torch.optim.Adam, loss: Tensor) -> None:
        optimiser.zero_grad()
        with self._timed("backward"):
            loss.backward()
        with self._timed("adam"):
            optimiser.step()

    @torch.no_grad()
    def _update_temperature(self, log_prob: Tensor) -> None:
        state = self.state
        step, (log_alpha, mean, square) = state.updates + 1, state.temperature.unbind()
        gradient = state.rule.temperature_gradient(log_prob, state.config.entropy_goal)
        mean.lerp_(gradient, 1 - 0.9)
        square.mul_(0.999).addcmul_(gradient, gradient, value=1 - 0.999)
        size = (square / (1 - 0.999**step)).sqrt_().add_(ADAM_EPS)
        log_alpha.sub_(state.config.lr * (mean / (1 - 0.9**step)) / size)

    @torch.no_grad()
    def _update_target(self) -> None:
        state = self.state
        ours = dict(state.critics.named_parameters())
        for name, parameter in state.target.named_parameters():
            state.rule.move_target(state.config, parameter, ours[name])


def shift_frames(frames: Tensor, shift: Tensor) -> Tensor:
    """Shift frames `[B, C, S, S]` up and left by `shift` `[B, 2]` pixels; edges are repeated."""
    count, _, side, _ = frames.shape
    position = torch.arange(side, device=frames.device)
    y, x = ((position + shift[:, k, None]).clamp(0, side - 1) for k in range(2))
    row = torch.arange(count, device=frames.device)
    return frames[row[:, None, None], :, y[:, :, None], x[:, None, :]].permute(0, 3, 1, 2)


class Lean(Plain):
    """Computes the same with less work."""

    FUSED = True

    def __init__(self, state: SACState) -> None:
        config = state.config
        self._fold = fold_of(*config.shape.convs[0][1:], config.shape.observation[-1])
        super().__init__(state)
        if config.compiled:
            self.goal = torch.compile(self.goal, dynamic=False)
            self.critic_loss = torch.compile(self.critic_loss, dynamic=False)
            self.actor_loss = torch.compile(self.actor_loss, dynamic=False)

    def update(self, rows: Rows, noise: Noise, timed: TimePhase) -> Tensor:
        """Do one update; return the same numbers as `Plain.update`."""
        config = self.state.config
        # Inside compiled code nothing can be timed.
        timed_here = (lambda name: timed(name) if name in PHASES else nullcontext()) if config.compiled else timed
        with torch.autocast(self.state.device, torch.bfloat16, enabled=config.precision == "bfloat16"):
            return super().update(rows, noise, timed_here)

    @torch.no_grad()
    def _judging_features(self, obs: Tensor) -> list[Tensor]:
        return super()._judging_features(obs)

    def _judged(self, features: list[Tensor], action: Tensor) -> Tensor:
        # Without the gradients of the critics' weights, which are not used.
        with self._timed("fc"):
            pairs = zip(self.state.critics.bodies, features, strict=True)
            return torch.stack([_action_value(body, x, action) for body, x in pairs])  # type: ignore[arg-type]

    def _input(self, obs: NDArray, shift: NDArray[np.int64] | None) -> Tensor:
        if not self.state.config.shape.has_frames:
            return super()._input(obs, shift)
        x = fold_frames(obs, self._fold, shift).to(self.state.device)
        return x if self.state.config.channels_last else x.contiguous()

    def _encode(self, encoder: FrameEncoder, x: Tensor) -> Tensor:
        first, *others = encoder.convs
        with self._timed("conv1"):
            weight = fold_weights(first.weight, self._fold)  # type: ignore[arg-type]
            x = f.conv2d(x, weight, first.bias, self._stride).relu_()  # type: ignore[arg-type]
        for k, conv in enumerate(others):
            with self._timed(f"conv{k + 2}"):
                x = conv(x).relu_()
        return x.flatten(1)

    @property
    def _stride(self) -> int:
        return self.state.config.shape.convs[0][2] // self._fold

    def _critic_features(self, critics: Critics, x: Tensor) -> list[Tensor]:
        if not self.state.config.batched or len(critics.eyes) != TWINS:
            return super()._critic_features(critics, x)
        first, *others = zip(*(encoder.convs for encoder in critics.eyes), strict=True)  # type: ignore[union-attr]
        with self._timed("conv1"):
            weight = torch.cat([fold_weights(each.weight, self._fold) for each in first])
            x = f.conv2d(x, weight, torch.cat([each.bias for each in first]), self._stride).relu_()
        for k, pair in enumerate(others):
            with self._timed(f"conv{k + 2}"):
                weight, bias = torch.cat([each.weight for each in pair]), torch.cat([each.bias for each in pair])
                x = f.conv2d(x, weight, bias, pair[0].stride, groups=TWINS).relu_()
        return [part.flatten(1) for part in x.chunk(TWINS, dim=1)]

    def _values(self, critics: Critics, features: Sequence[Tensor], action: Tensor) -> Tensor:
        if not self.state.config.batched:
            return super()._values(critics, features, action)
        with self._timed("fc"):
            return self._both_values(critics, torch.stack(list(features)), action)

    def _both_values(self, critics: Critics, x: Tensor, action: Tensor) -> Tensor:
        first, second = critics.bodies
        if first.narrow is not None:
            x = _both(first.narrow, second.narrow, x)  # type: ignore[arg-type]
            x = torch.stack([body.norm(part) for body, part in zip(critics.bodies, x, strict=True)]).tanh()  # type: ignore[operator]
        x = torch.cat([x, action.expand(TWINS, *action.shape)], dim=2)
        for one, other in zip(first.hidden, second.hidden, strict=True):  # type: ignore[arg-type]
            x = _both(one, other, x).relu_()
        return _both(first.head, second.head, x).squeeze(2)  # type: ignore[arg-type]

    @torch.no_grad()
    def _update_target(self) -> None:
        state = self.state
        online = state.critic.weights[-len(state.target_weights) :]  # without the shared encoder, if there is one
        state.rule.move_target(state.config, state.target_weights, online)


def _action_value(body: Body, features: Tensor, action: Tensor) -> Tensor:
    """Values `[B]` of actions, with gradients for the actions only, not for weights or features."""
    first, *others = body.hidden
    width = first.in_features - action.shape[1]  # type: ignore[operator]
    with torch.no_grad():
        constant = f.linear(body.narrowed(features), first.weight[:, :width], first.bias)  # type: ignore[index, arg-type]
    x = f.relu(constant + action @ first.weight[:, width:].detach().T)  # type: ignore[index]
    for linear in [*others, body.head]:
        x = f.linear(x, linear.weight.detach(), linear.bias.detach())  # type: ignore[union-attr, operator]
        x = x if linear is body.head else x.relu()
    return x.squeeze(1)


def _both(one: nn.Linear, other: nn.Linear, x: Tensor) -> Tensor:
    """Apply two linear layers of the same size to `[2, B, inputs]`."""
    weight, bias = torch.stack([one.weight, other.weight]), torch.stack([one.bias, other.bias])
    return torch.baddbmm(bias[:, None], x, weight.transpose(1, 2))
