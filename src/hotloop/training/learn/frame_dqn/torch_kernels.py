"""Three versions of the update of DQN on frames in torch: the reference, one with less work, and a compiled one.

`Plain` is the reference. `Lean` folds the first convolution, uses the channels-last layout, and does clipping, Adam and
the soft update on whole vectors. `Compiled` is `Lean` with networks and losses compiled by torch.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as f

from hotloop.training.learn.frame_dqn.state import (
    ADAM_EPS,
    FrameDQNState,
    FrameQNetwork,
    FrameQNetworks,
    FrameQShape,
    check_frames,
    statistics,
)
from hotloop.training.learn.kernels.frame_input import fold_frames, fold_of, fold_weights
from hotloop.training.learn.learner import TimePhase

Rows = tuple[NDArray, ...]


class FoldedForward:
    """Forward pass from stored frames to values, with the first convolution folded."""

    def __init__(self, shape: FrameQShape, device: str) -> None:
        _, kernel, stride = shape.convs[0]
        self._shape, self._device = shape, device
        self._fold = fold_of(kernel, stride, shape.observation[1])
        self._stride = stride // self._fold

    def input(self, obs: NDArray) -> Tensor:
        """Convert observations, uint8 `[N, stack, side, side]`, to the input of `values`."""
        check_frames(obs, self._shape)
        return fold_frames(obs, self._fold).to(self._device)

    def values(self, network: FrameQNetwork, x: Tensor) -> Tensor:
        """Values `[N, A]`."""
        first, *others = network.convs
        weight = fold_weights(first.weight, self._fold)  # type: ignore[arg-type]
        x = network.activate(0, f.conv2d(x, weight, first.bias, self._stride))  # type: ignore[arg-type]
        for k, conv in enumerate(others):
            x = network.activate(k + 1, conv(x))
        return network.head(x)


class Plain:
    """The reference: one operation after the other."""

    def __init__(self, state: FrameDQNState) -> None:
        self.state = state
        self._prepare()
        self._kind = torch.device(state.device).type
        half = state.config.precision == "float16"
        self._scaler = torch.amp.GradScaler(self._kind, init_scale=state.loss_scale, enabled=half)

    def update(self, rows: Rows, timed: TimePhase) -> tuple[Tensor, Tensor]:
        """Do one update of the state, in place; return |TD error| `[B]` and the loss.

        The rows are observations, actions, rewards, next observations, discounts and importance weights of B
        transitions.
        """
        state, parts = self.state, self.state.config.accumulate
        self._zero_grad()
        errors, losses = [], []
        for k in range(parts):
            # Convert to floats part by part: 2,048 stacks of 8 frames of 128×128 would take 2 GB at once.
            part = [each[len(each) * k // parts : len(each) * (k + 1) // parts] for each in rows]
            with timed("input"):
                obs, next_obs = self._input(part[0]), self._input(part[3])
                action, reward, discount, weight = (self._tensor(part[j]) for j in (1, 2, 4, 5))
            with timed("target"), self._autocast():
                goal = self.goal(next_obs, reward, discount)
            with timed("forward"), self._autocast():
                loss, error = self._training_loss(obs, action, goal, weight)
            with timed("backward"):
                self._scaler.scale(loss / parts).backward()
            errors.append(error)
            losses.append(loss.detach())
        with timed("adam"):
            self._step()
        with timed("soft update"):
            self._update_target()
            state.updates += 1
        return torch.cat(errors), torch.stack(losses).mean()

    @torch.no_grad()
    def q_values(self, obs: NDArray) -> Tensor:
        """Values `[N, A]` of the online network."""
        with self._autocast():
            return self._q(self.state.network, self._input(obs))

    @torch.no_grad()
    def goal(self, next_obs: Tensor, reward: Tensor, discount: Tensor) -> Tensor:
        """Targets `[B]` for the values of the actions taken."""
        state = self.state
        networks = FrameQNetworks(partial(self._q, state.network), partial(self._q, state.target_network))
        return state.rule.goal(state.config, networks, next_obs, reward, discount)

    def loss(self, obs: Tensor, action: Tensor, goal: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Loss, and |TD error| `[B]`."""
        return self.state.rule.loss(self._q(self.state.network, obs), action, goal, weight)

    def _training_loss(self, obs: Tensor, action: Tensor, goal: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Compute `loss`; batch normalisation, if any, uses and records the statistics of this batch."""
        network = self.state.network
        if not len(network.norms):
            return self.loss(obs, action, goal, weight)
        network.train()
        try:
            return self.loss(obs, action, goal, weight)
        finally:
            network.eval()

    def _q(self, network: FrameQNetwork, x: Tensor) -> Tensor:
        return network(x).float()

    def _autocast(self) -> AbstractContextManager[object]:
        """Compute in the configured precision where torch considers it safe."""
        precision = self.state.config.precision
        kind = torch.bfloat16 if precision == "bfloat16" else torch.float16
        return torch.autocast(self._kind, kind, enabled=precision != "float32")

    def _tensor(self, rows: NDArray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(rows)).to(self.state.device)

    def _input(self, obs: NDArray) -> Tensor:
        check_frames(obs, self.state.config.shape)
        return self._tensor(obs).float() / 255

    def _prepare(self) -> None:
        self.optimiser = self.state.online.adam(self.state.config.lr, ADAM_EPS, self.state.updates)

    def _zero_grad(self) -> None:
        self.optimiser.zero_grad()

    def _step(self) -> None:
        self._scaler.unscale_(self.optimiser)
        if self.state.config.clip:
            self._clip(self.state.config.clip)
        self._scaler.step(self.optimiser)
        if self._scaler.is_enabled():
            self._scaler.update()
            self.state.loss_scale = self._scaler.get_scale()  # host sync

    def _clip(self, max_norm: float) -> None:
        nn.utils.clip_grad_norm_(self.state.network.parameters(), max_norm)

    @torch.no_grad()
    def _update_target(self) -> None:
        state = self.state
        online = dict(state.network.named_parameters()) | statistics(state.network)
        target = dict(state.target_network.named_parameters()) | statistics(state.target_network)
        for name, tensor in target.items():
            state.rule.move_target(state.config, tensor, online[name])


class Lean(Plain):
    """Computes the same with less work."""

    def __init__(self, state: FrameDQNState) -> None:
        self._forward = FoldedForward(state.config.shape, state.device)
        super().__init__(state)
        online, target = statistics(state.network), statistics(state.target_network)
        self._statistics = [(target[name], online[name]) for name in target]

    def _input(self, obs: NDArray) -> Tensor:
        return self._forward.input(obs)

    def _q(self, network: FrameQNetwork, x: Tensor) -> Tensor:
        return self._forward.values(network, x).float()

    def _prepare(self) -> None:
        state = self.state
        self.optimiser, self._gradient = state.online.flat_adam(state.config.lr, ADAM_EPS, state.updates)

    def _zero_grad(self) -> None:
        self._gradient.zero_()

    def _clip(self, max_norm: float) -> None:
        self._gradient.mul_((max_norm / (self._gradient.norm() + 1e-6)).clamp_(max=1.0))

    @torch.no_grad()
    def _update_target(self) -> None:
        state = self.state
        for target, online in [(state.target_weights, state.online.weights), *self._statistics]:
            state.rule.move_target(state.config, target, online)


class Compiled(Lean):
    """`Lean`, compiled. Compiling takes about a minute, so measure whether it pays."""

    def __init__(self, state: FrameDQNState) -> None:
        super().__init__(state)
        self.goal = torch.compile(self.goal, dynamic=False)
        self.loss = torch.compile(self.loss, dynamic=False)
