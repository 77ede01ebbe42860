"""Three versions of DQN's update in torch: plain, with less overhead, and compiled as one function.

`Plain` is the reference: it calls the pipeline's loss unchanged, and it supports every option.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value

from hotloop.training.learn.dqn.state import ADAM_EPS, DQNState, QNetworks, QRows, Updated
from hotloop.training.learn.flat_params import views
from hotloop.training.learn.learner import F32, TransitionBatch
from hotloop.training.learn.networks import QNetwork

Noise = tuple[Tensor | None, Tensor | None]
"""Of the online and of the target network."""


class Plain:
    """The reference: one operation after the other."""

    def __init__(self, state: DQNState) -> None:
        self.state = state
        self._prepare()

    def _prepare(self) -> None:
        """Make the optimiser, or whatever replaces it."""
        self.optimiser = self.state.online.adam(self.state.config.lr, ADAM_EPS, self.state.updates)

    def update(self, batch: TransitionBatch, noise: F32 | None) -> Updated:
        """Do K updates with K · B rows. Noise is `[K, 2, noise_size]`, for the online and the target network."""
        state, size = self.state, self.state.config.batch
        weight = np.ones(len(batch.reward), np.float32) if batch.weight is None else batch.weight
        arrays = (batch.obs, batch.action, batch.reward, batch.next_obs, batch.discount, weight)
        tensors = [torch.from_numpy(np.ascontiguousarray(array)).to(state.device) for array in arrays]
        drawn = None if noise is None else torch.from_numpy(noise).to(state.device)
        losses, errors = [], []
        for k in range(len(weight) // size):
            rows = QRows(*(tensor[k * size : (k + 1) * size] for tensor in tensors))
            loss, error = self._step(rows, (None, None) if drawn is None else (drawn[k, 0], drawn[k, 1]))
            losses.append(loss)
            errors.append(error)
            state.updates += 1
            state.rule.move_target(state.config, state.target_weights, state.online.weights, state.updates)
        return Updated(torch.cat(errors).cpu().numpy(), torch.stack(losses).cpu().numpy())  # host sync

    def _loss(self, rows: QRows, noise: Noise) -> tuple[Tensor, Tensor]:
        state = self.state
        network, target = state.network, state.target_network
        networks = QNetworks(
            lambda obs: network(obs, noise[0]), lambda obs: target(obs, noise[1]), network.values, network.support
        )
        return state.rule.loss(state.config, networks, rows)

    def _step(self, rows: QRows, noise: Noise) -> tuple[Tensor, Tensor]:
        state = self.state
        loss, error = self._loss(rows, noise)
        self.optimiser.zero_grad()
        loss.backward()
        if state.config.clip:
            nn.utils.clip_grad_norm_(state.network.parameters(), state.config.clip)
        self.optimiser.step()
        return loss.detach(), error

    @torch.no_grad()
    def q_values(self, obs: NDArray, noise: F32 | None) -> F32:
        """Values `[N, A]` of the online network, with noise `[noise_size]`."""
        network, device = self.state.network, self.state.device
        noise_tensor = None if noise is None else torch.from_numpy(noise).to(device)
        output = network(torch.from_numpy(np.ascontiguousarray(obs)).to(device), noise_tensor)
        return network.values(output).cpu().numpy()


class Fused(Plain):
    """Does clipping and Adam on the flat vectors, as one operation each."""

    def _prepare(self) -> None:
        state = self.state
        self.optimiser, self._gradient = state.online.flat_adam(state.config.lr, ADAM_EPS, state.updates)

    def _step(self, rows: QRows, noise: Noise) -> tuple[Tensor, Tensor]:
        state, gradient = self.state, self._gradient
        gradient.zero_()
        loss, error = self._loss(rows, noise)
        loss.backward()
        if state.config.clip:
            gradient.mul_((state.config.clip / (gradient.norm() + 1e-6)).clamp_(max=1.0))
        self.optimiser.step()
        return loss.detach(), error


class Compiled(Plain):
    """Does the whole update as one pure function of flat vectors, compiled by torch."""

    def _prepare(self) -> None:
        self._compiled = torch.compile(self._pure_update, fullgraph=True, dynamic=False)

    def _pure_update(self, vectors: tuple[Tensor, ...], step: Tensor, rows: QRows, noise: Noise) -> tuple[Tensor, ...]:
        """Take weights, moments and target; return new weights and moments, the loss, and the errors."""
        config, network = self.state.config, self.state.network
        weights, mean, square, target_weights = vectors

        def loss_of(flat: Tensor) -> tuple[Tensor, Tensor]:
            online, target = _with_weights(network, flat, noise[0]), _with_weights(network, target_weights, noise[1])
            return self.state.rule.loss(config, QNetworks(online, target, network.values, network.support), rows)

        gradient, (loss, error) = grad_and_value(loss_of, has_aux=True)(weights)
        if config.clip:
            gradient = gradient * (config.clip / (gradient.norm() + 1e-6)).clamp(max=1.0)
        mean = mean.lerp(gradient, 1 - 0.9)
        square = 0.999 * square + (1 - 0.999) * gradient * gradient
        size = config.lr / (1 - 0.9**step)
        weights = weights - size * mean / (square.sqrt() / (1 - 0.999**step).sqrt() + ADAM_EPS)
        return weights, mean, square, loss, error

    @torch.no_grad()
    def _step(self, rows: QRows, noise: Noise) -> tuple[Tensor, Tensor]:
        state = self.state
        online = state.online
        vectors = (online.weights, online.mean, online.square, state.target_weights)
        step = torch.tensor(float(state.updates + 1), dtype=torch.float64, device=state.device)
        weights, mean, square, loss, error = self._compiled(vectors, step, rows, noise)
        online.weights.copy_(weights)
        online.mean.copy_(mean)
        online.square.copy_(square)
        return loss, error


def _with_weights(network: QNetwork, flat: Tensor, noise: Tensor | None) -> Callable[[Tensor], Tensor]:
    """Return the network as a function that uses these weights `[P]` instead of its own."""
    parameters = views(network, flat)
    return lambda obs: functional_call(network, parameters, (obs, noise))
