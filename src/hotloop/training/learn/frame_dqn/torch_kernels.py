"""The update of a DQN over frames in torch, three times: as one writes it, with less work, and compiled.

`Plain` is the reference. `Lean` folds the first convolution, keeps channels last, and does clipping, Adam and the soft
update on whole vectors. `Compiled` is `Lean` with networks and losses compiled by torch.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as f

from hotloop.training.learn.flat_params import views
from hotloop.training.learn.frame_dqn.state import (
    ADAM_EPS,
    FrameDQNState,
    FrameQNetwork,
    FrameQShape,
    check_frames,
    statistics,
)
from hotloop.training.learn.kernels.frame_input import fold_weights, folded
from hotloop.training.learn.learner import TimePhase
from hotloop.training.learn.losses import huber, q_target

Rows = tuple[NDArray, ...]


class Glance:
    """Applies networks of one shape to frames as they are stored, with the first convolution folded.

    Args:
        shape: Of the networks.
        device: Where they are.
    """

    def __init__(self, shape: FrameQShape, device: str) -> None:
        _, kernel, stride = shape.convs[0]
        self._shape, self._device = shape, device
        self._fold = stride if kernel % stride == 0 and shape.observation[1] % stride == 0 else 1
        self._stride = stride // self._fold

    def input(self, obs: NDArray) -> Tensor:
        """Turn observations, uint8 `[N, stack, side, side]`, into what `values` takes."""
        check_frames(obs, self._shape)
        return folded(obs, self._fold).to(self._device)

    def values(self, network: FrameQNetwork, x: Tensor) -> Tensor:
        """Values `[N, A]`."""
        first, *others = network.convs
        weight = fold_weights(first.weight, self._fold)  # type: ignore[arg-type]
        x = network.behind(0, f.conv2d(x, weight, first.bias, self._stride))  # type: ignore[arg-type]
        for k, conv in enumerate(others):
            x = network.behind(k + 1, conv(x))
        return network.head(x)


class Plain:
    """One operation after the other, as one would write it: the reference."""

    def __init__(self, state: FrameDQNState) -> None:
        self.state = state
        self.optimiser = self._make_optimiser()
        self._kind = torch.device(state.device).type
        half = state.config.precision == "float16"
        self._scaler = torch.amp.GradScaler(self._kind, init_scale=state.loss_scale, enabled=half)

    def update(self, rows: Rows, timed: TimePhase) -> tuple[Tensor, Tensor]:
        """Do one update; return |TD error| `[B]` and the loss."""
        state, parts = self.state, self.state.config.accumulate
        self._clear()
        errors, losses = [], []
        for k in range(parts):
            # Bytes become floats part by part, too: 2,048 stacks of 8 frames of 128×128 would be 2 GB of them.
            part = [each[len(each) * k // parts : len(each) * (k + 1) // parts] for each in rows]
            with timed("input"):
                obs, next_obs = self._input(part[0]), self._input(part[3])
                action, reward, discount, weight = (self._tensor(part[j]) for j in (1, 2, 4, 5))
            with timed("target"), self._lowered():
                goal = self.goal(next_obs, reward, discount)
            with timed("forward"), self._lowered():
                loss, error = self._losses(obs, action, goal, weight)
            with timed("backward"):
                self._scaler.scale(loss / parts).backward()
            errors.append(error)
            losses.append(loss.detach())
        with timed("adam"):
            self._step()
        with timed("soft update"):
            self._follow()
            state.updates += 1
        return torch.cat(errors), torch.stack(losses).mean()

    @torch.no_grad()
    def q_values(self, obs: NDArray) -> Tensor:
        """Values `[N, A]` by the online network."""
        with self._lowered():
            return self._q(self.state.network, self._input(obs)).float()

    @torch.no_grad()
    def goal(self, next_obs: Tensor, reward: Tensor, discount: Tensor) -> Tensor:
        """What the values of the actions taken should be, `[B]`."""
        target_q = self._q(self.state.target_network, next_obs).float()
        double = self.state.config.double
        return q_target(
            reward, discount, target_q, self._q(self.state.network, next_obs).float() if double else target_q
        )

    def loss(self, obs: Tensor, action: Tensor, goal: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """`mean w · huber(Q(s, a) − goal)`, and `|Q(s, a) − goal|` `[B]`."""
        q = self._q(self.state.network, obs).float()
        error = q.gather(1, action[:, None]).squeeze(1) - goal
        return (weight * huber(error)).mean(), error.detach().abs()

    def _losses(self, obs: Tensor, action: Tensor, goal: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The same, by the statistics of this batch where there is normalisation, of which note is taken."""
        network = self.state.network
        if not len(network.norms):
            return self.loss(obs, action, goal, weight)
        network.train()
        try:
            return self.loss(obs, action, goal, weight)
        finally:
            network.eval()

    def _q(self, network: FrameQNetwork, x: Tensor) -> Tensor:
        return network(x)

    def _lowered(self) -> AbstractContextManager[object]:
        """Compute in the lower precision meanwhile, where it pays."""
        precision = self.state.config.precision
        kind = torch.bfloat16 if precision == "bfloat16" else torch.float16
        return torch.autocast(self._kind, kind, enabled=precision != "float32")

    def _tensor(self, rows: NDArray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(rows)).to(self.state.device)

    def _input(self, obs: NDArray) -> Tensor:
        check_frames(obs, self.state.config.shape)
        return self._tensor(obs).float() / 255

    def _make_optimiser(self) -> Any:
        return self.state.online.adam(self.state.config.lr, ADAM_EPS, self.state.updates)

    def _clear(self) -> None:
        self.optimiser.zero_grad()

    def _step(self) -> None:
        self._scaler.unscale_(self.optimiser)
        if self.state.config.clip:
            self._clip(self.state.config.clip)
        self._scaler.step(self.optimiser)
        if self._scaler.is_enabled():
            self._scaler.update()
            self.state.loss_scale = self._scaler.get_scale()  # host sync

    def _clip(self, most: float) -> None:
        nn.utils.clip_grad_norm_(self.state.network.parameters(), most)

    @torch.no_grad()
    def _follow(self) -> None:
        """Move the target a little towards the online network, its statistics as well as its weights."""
        state, tau = self.state, self.state.config.tau
        ours = dict(state.network.named_parameters()) | statistics(state.network)
        theirs = dict(state.target_network.named_parameters()) | statistics(state.target_network)
        for name, tensor in theirs.items():
            tensor.lerp_(ours[name], tau)


class Lean(Plain):
    """The same with less work."""

    def __init__(self, state: FrameDQNState) -> None:
        self._glance = Glance(state.config.shape, state.device)
        super().__init__(state)
        ours, theirs = statistics(state.network), statistics(state.target_network)
        self._statistics = [(theirs[name], ours[name]) for name in theirs]

    def _input(self, obs: NDArray) -> Tensor:
        return self._glance.input(obs)

    def _q(self, network: FrameQNetwork, x: Tensor) -> Tensor:
        return self._glance.values(network, x)

    def _make_optimiser(self) -> Any:
        online = self.state.online
        self.flat = nn.Parameter(online.weights, requires_grad=True)
        self._gradient = self.flat.grad = torch.zeros_like(online.weights)
        grads = views(online.network, self._gradient)
        for name, parameter in online.network.named_parameters():
            parameter.grad = grads[name]
        optimiser = torch.optim.Adam([self.flat], lr=self.state.config.lr, eps=ADAM_EPS, fused=True)
        step = torch.tensor(float(self.state.updates), device=self.state.device)
        optimiser.state[self.flat] = {"step": step, "exp_avg": online.mean, "exp_avg_sq": online.square}
        return optimiser

    def _clear(self) -> None:
        self._gradient.zero_()

    def _clip(self, most: float) -> None:
        self._gradient.mul_((most / (self._gradient.norm() + 1e-6)).clamp_(max=1.0))

    @torch.no_grad()
    def _follow(self) -> None:
        state = self.state
        state.target_weights.lerp_(state.online.weights, state.config.tau)
        for theirs, ours in self._statistics:
            theirs.lerp_(ours, state.config.tau)


class Compiled(Lean):
    """The same, compiled: worth a minute of compiling only where a trial says so."""

    def __init__(self, state: FrameDQNState) -> None:
        super().__init__(state)
        for name in ("goal", "loss"):
            setattr(self, name, torch.compile(getattr(self, name), dynamic=False))
