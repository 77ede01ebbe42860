"""SAC's update in torch, twice: as one writes it, and with the same maths but less work.

`Plain` is the reference. `Lean` leaves out the gradients that nobody uses (in the actor's loss, those of the critics
and of what they see), folds the first convolution, keeps channels last, and does Adam and the soft update in one call
each.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as f

from hotloop.training.learn.flat_params import Trained
from hotloop.training.learn.kernels.frame_input import fold_weights, folded
from hotloop.training.learn.learner import TimePhase
from hotloop.training.learn.sac.networks import TWINS, Body, Critics, Eye, squash
from hotloop.training.learn.sac.state import ADAM_EPS, PHASES, Chance, SACState

Rows = tuple[NDArray, ...]


class Plain:
    """One operation after the other, as one would write it: the reference."""

    FUSED = False
    """Adam for all parameters in one call?"""

    def __init__(self, state: SACState) -> None:
        self.state = state
        self.actor_optimiser = self._optimiser(state.actor)
        self.critic_optimiser = self._optimiser(state.critic)
        self._timed: TimePhase = untimed

    def update(self, rows: Rows, chance: Chance, timed: TimePhase) -> Tensor:
        """Do one update; return critic loss, actor loss, temperature, entropy and mean value, `[5]`."""
        state, self._timed = self.state, timed
        with timed("input"):
            obs, next_obs, action, reward, discount = self._tensors(rows, chance)
            alpha = state.temperature[0].exp()
        with timed("target"):
            goal = self.goal(next_obs, reward, discount, chance.next_action, alpha)
        with timed("critics"):
            critic_loss, q, seen = self.critic_loss(obs, action, goal)
            self._step(self.critic_optimiser, critic_loss)
        with timed("actor"):
            actor_loss, log_prob = self.actor_loss(obs, seen, chance.action, alpha)
            self._step(self.actor_optimiser, actor_loss)
        with timed("temperature"):
            self._heat(log_prob)
        with timed("soft update"):
            self._follow()
            state.updates += 1
        return torch.stack([critic_loss.detach(), actor_loss.detach(), alpha, -log_prob.mean(), q.mean()])

    @torch.no_grad()
    def policy(self, obs: NDArray) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation of the actions for observations `[N, ...]`."""
        self._timed = untimed
        x = self._input(obs, None)
        return self.state.policy(self._policy_features(x))

    @torch.no_grad()
    def goal(self, next_obs: Tensor, reward: Tensor, discount: Tensor, noise: Tensor, alpha: Tensor) -> Tensor:
        """What the critics should say, `[B]`: `r + γ (min_i Q⁻_i(s', a') − α log π(a'|s'))`, `a' ~ π(s')`."""
        state = self.state
        features = self._policy_features(next_obs)
        next_action, log_prob = self._drawn(features, noise)
        seen = [features] * TWINS if state.config.shape.shared else self._look(state.target, next_obs)
        next_q = self._values(state.target, seen, next_action).amin(dim=0)
        return reward + discount * (next_q - alpha * log_prob)

    def critic_loss(self, obs: Tensor, action: Tensor, goal: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """`Σ_i mean (Q_i(s, a) − goal)²`; also the values `[2, B]` and the features."""
        seen = self._look(self.state.critics, obs)
        q = self._values(self.state.critics, seen, action)
        return (q - goal).square().mean(dim=1).sum(), q.detach(), [each.detach() for each in seen]

    def actor_loss(self, obs: Tensor, seen: list[Tensor], noise: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """`mean (α log π(a|s) − min_i Q_i(s, a))`, `a ~ π(s)`; also the log densities `[B]`.

        Behind the eye of all the policy looks at what the critics saw before their update, and does not train it.
        """
        state = self.state
        if state.config.shape.shared:
            features = seen[0]
        else:
            features, seen = self._policy_features(obs), self._look(state.critics, obs)
        action, log_prob = self._drawn(features, noise)
        q = self._values(state.critics, seen, action).amin(dim=0)
        return (alpha * log_prob - q).mean(), log_prob.detach()

    def _tensors(self, rows: Rows, chance: Chance) -> tuple[Tensor, ...]:
        obs, action, reward, next_obs, discount = rows
        now, then = (None, None) if chance.shift is None else chance.shift
        others = [
            torch.from_numpy(np.ascontiguousarray(each)).to(self.state.device) for each in (action, reward, discount)
        ]
        return (self._input(obs, now), self._input(next_obs, then), *others)

    def _input(self, obs: NDArray, shift: NDArray[np.int64] | None) -> Tensor:
        x = torch.from_numpy(np.ascontiguousarray(obs)).to(self.state.device)
        if not self.state.config.shape.sees:
            return x
        x = x.float() / 255
        return x if shift is None else moved(x, torch.from_numpy(shift).to(x.device))

    def _see(self, eye: Eye, x: Tensor) -> Tensor:
        for k, conv in enumerate(eye.convs):
            with self._timed(f"conv{k + 1}"):
                x = conv(x).relu()
        return x.flatten(1)

    def _drawn(self, features: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Actions of the policy, and their log densities."""
        with self._timed("fc"):
            mean, log_std = self.state.policy(features)
            return squash(mean, log_std, noise)

    def _policy_features(self, x: Tensor) -> Tensor:
        """What the policy knows of observations."""
        shape, state = self.state.config.shape, self.state
        if not shape.sees:
            return x
        eye = state.critics.eyes[0] if shape.shared else state.policy.eye
        assert isinstance(eye, Eye)
        return self._see(eye, x)

    def _look(self, critics: Critics, x: Tensor) -> list[Tensor]:
        """What each critic knows of observations, `[B, features]` each."""
        if not critics.eyes:
            return [x] * TWINS
        seen = [self._see(eye, x) for eye in critics.eyes]  # type: ignore[arg-type]
        return seen * TWINS if len(seen) == 1 else seen

    def _values(self, critics: Critics, seen: Sequence[Tensor], action: Tensor) -> Tensor:
        with self._timed("fc"):
            return critics(seen, action)

    def _optimiser(self, trained: Trained) -> Any:
        return trained.adam(self.state.config.lr, ADAM_EPS, self.state.updates, self.FUSED)

    def _step(self, optimiser: Any, loss: Tensor) -> None:
        optimiser.zero_grad()
        with self._timed("backward"):
            loss.backward()
        with self._timed("adam"):
            optimiser.step()

    @torch.no_grad()
    def _heat(self, log_prob: Tensor) -> None:
        """Move log α by Adam along the gradient of `−log α · mean(log π + H)`."""
        state = self.state
        step, (log_alpha, mean, square) = state.updates + 1, state.temperature.unbind()
        gradient = -(log_prob.mean() + state.config.wanted_entropy)
        mean.lerp_(gradient, 1 - 0.9)
        square.mul_(0.999).addcmul_(gradient, gradient, value=1 - 0.999)
        size = (square / (1 - 0.999**step)).sqrt_().add_(ADAM_EPS)
        log_alpha.sub_(state.config.lr * (mean / (1 - 0.9**step)) / size)

    @torch.no_grad()
    def _follow(self) -> None:
        """Move the target a little towards the critics, parameter by parameter."""
        state = self.state
        ours = dict(state.critics.named_parameters())
        for name, parameter in state.target.named_parameters():
            parameter.lerp_(ours[name], state.config.tau)


def untimed(name: str, /) -> AbstractContextManager[object]:
    """Time nothing."""
    return nullcontext()


def moved(frames: Tensor, shift: Tensor) -> Tensor:
    """Move frames `[B, C, S, S]` up and left by `shift` `[B, 2]` pixels; edges are repeated."""
    count, _, side, _ = frames.shape
    place = torch.arange(side, device=frames.device)
    y, x = ((place + shift[:, k, None]).clamp(0, side - 1) for k in range(2))
    which = torch.arange(count, device=frames.device)
    return frames[which[:, None, None], :, y[:, :, None], x[:, None, :]].permute(0, 3, 1, 2)


class Lean(Plain):
    """The same with less work."""

    FUSED = True

    def __init__(self, state: SACState) -> None:
        config = state.config
        first = config.shape.convs[0] if config.shape.sees else (0, 1, 1)
        self._fold = first[2] if first[1] % first[2] == 0 and config.shape.observation[-1] % first[2] == 0 else 1
        super().__init__(state)
        if config.compiled:
            for name in ("goal", "critic_loss", "actor_loss"):
                setattr(self, name, torch.compile(getattr(self, name), dynamic=False))

    def update(self, rows: Rows, chance: Chance, timed: TimePhase) -> Tensor:
        """Do one update; return what `Plain.update` does."""
        config = self.state.config
        # Compiled code has no parts that could be timed.
        shown = (lambda name: timed(name) if name in PHASES else nullcontext()) if config.compiled else timed
        with torch.autocast(self.state.device, torch.bfloat16, enabled=config.precision == "bfloat16"):
            return super().update(rows, chance, shown)

    def actor_loss(self, obs: Tensor, seen: list[Tensor], noise: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """The same; the critics' weights get no gradients, which would be thrown away."""
        state = self.state
        if state.config.shape.shared:
            features = seen[0]
        else:
            features = self._policy_features(obs)
            with torch.no_grad():
                seen = self._look(state.critics, obs)
        action, log_prob = self._drawn(features, noise)
        with self._timed("fc"):
            pairs = zip(state.critics.bodies, seen, strict=True)
            q = torch.stack([_value(body, x, action) for body, x in pairs])  # type: ignore[arg-type]
        return (alpha * log_prob - q.amin(dim=0)).mean(), log_prob.detach()

    def _input(self, obs: NDArray, shift: NDArray[np.int64] | None) -> Tensor:
        if not self.state.config.shape.sees:
            return super()._input(obs, shift)
        x = folded(obs, self._fold, shift).to(self.state.device)
        return x if self.state.config.channels_last else x.contiguous()

    def _see(self, eye: Eye, x: Tensor) -> Tensor:
        first, *others = eye.convs
        with self._timed("conv1"):
            weight = fold_weights(first.weight, self._fold)  # type: ignore[arg-type]
            x = f.conv2d(x, weight, first.bias, self._stride).relu_()  # type: ignore[arg-type]
        for k, conv in enumerate(others):
            with self._timed(f"conv{k + 2}"):
                x = conv(x).relu_()
        return x.flatten(1)

    @property
    def _stride(self) -> int:
        """What is left of the first convolution's stride."""
        return self.state.config.shape.convs[0][2] // self._fold

    def _look(self, critics: Critics, x: Tensor) -> list[Tensor]:
        if not self.state.config.batched or len(critics.eyes) != TWINS:
            return super()._look(critics, x)
        first, *others = zip(*(eye.convs for eye in critics.eyes), strict=True)  # type: ignore[union-attr]
        with self._timed("conv1"):
            weight = torch.cat([fold_weights(each.weight, self._fold) for each in first])
            x = f.conv2d(x, weight, torch.cat([each.bias for each in first]), self._stride).relu_()
        for k, pair in enumerate(others):
            with self._timed(f"conv{k + 2}"):
                weight, bias = (torch.cat([getattr(each, name) for each in pair]) for name in ("weight", "bias"))
                x = f.conv2d(x, weight, bias, pair[0].stride, groups=TWINS).relu_()
        return [part.flatten(1) for part in x.chunk(TWINS, dim=1)]

    def _values(self, critics: Critics, seen: Sequence[Tensor], action: Tensor) -> Tensor:
        if not self.state.config.batched:
            return super()._values(critics, seen, action)
        with self._timed("fc"):
            return self._both_values(critics, torch.stack(list(seen)), action)

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
    def _follow(self) -> None:
        state = self.state
        state.target_weights.lerp_(state.critic.weights[-len(state.target_weights) :], state.config.tau)


def _value(body: Body, features: Tensor, action: Tensor) -> Tensor:
    """Values `[B]` of actions, with gradients for these alone: not for the weights, nor for what is seen."""
    first, *others = body.hidden
    width = first.in_features - action.shape[1]  # type: ignore[operator]
    with torch.no_grad():
        known = f.linear(body.narrowed(features), first.weight[:, :width], first.bias)  # type: ignore[index, arg-type]
    x = f.relu(known + action @ first.weight[:, width:].detach().T)  # type: ignore[index]
    for linear in [*others, body.head]:
        x = f.linear(x, linear.weight.detach(), linear.bias.detach())  # type: ignore[union-attr, operator]
        x = x if linear is body.head else x.relu()
    return x.squeeze(1)


def _both(one: nn.Linear, other: nn.Linear, x: Tensor) -> Tensor:
    """Apply two linear layers of the same size to `[2, B, inputs]`."""
    weight, bias = torch.stack([one.weight, other.weight]), torch.stack([one.bias, other.bias])
    return torch.baddbmm(bias[:, None], x, weight.transpose(1, 2))
