"""Gradients that nobody takes are counted; those that somebody takes are not."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from tests import counting
from torch import nn

from hotloop.profiling.recorder.hooks import install
from hotloop.profiling.recorder.hooks.state import HookState
from hotloop.profiling.recorder.hooks.torch.dropped_gradients import EVERY

STEPS = 3 * EVERY + 1
"""So that three steps are followed to the next zeroing."""


@pytest.fixture
def state() -> HookState:
    return HookState()


@pytest.fixture
def counted(state):
    """Return a function that does something with all hooks on, and gives what was counted meanwhile."""
    uninstall = install(state)
    yield counting.counted
    uninstall()


class ActorCritic:
    """Two networks with an optimiser each; the actor's loss goes through the critic."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        self.actor, self.critic = nn.Linear(4, 2), nn.Linear(6, 1)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), lr=1e-3)
        self.x, self.y = torch.randn(8, 4), torch.randn(8, 6)

    def update(self, only_the_actors: bool) -> None:
        self.critic_opt.zero_grad()
        self.critic(self.y).pow(2).mean().backward()
        self.critic_opt.step()
        loss = -self.critic(torch.cat((self.x, self.actor(self.x)), 1)).mean()
        self.actor_opt.zero_grad()
        loss.backward(inputs=list(self.actor.parameters()) if only_the_actors else None)
        self.actor_opt.step()


ACTOR, CRITIC = 4 * 2 + 2, 6 + 1


def test_what_an_actors_loss_leaves_in_its_critic_is_dropped(counted, state):
    agent = ActorCritic()
    seen = counted(lambda: [agent.update(False) for _ in range(STEPS)])
    assert seen["gradients_dropped_elements"] == 3 * EVERY * CRITIC
    assert seen["gradients_taken_elements"] == 3 * EVERY * (ACTOR + CRITIC)
    (((file, line), times),) = state.gradients.dropped_at.items()
    assert (file, times) == (__file__, 3)
    assert "loss.backward" in Path(__file__).read_text(encoding="utf-8").splitlines()[line - 1]


def test_a_backward_for_the_actor_alone_drops_nothing(counted):
    agent = ActorCritic()
    seen = counted(lambda: [agent.update(True) for _ in range(STEPS)])
    assert seen["gradients_dropped_elements"] == 0
    assert seen["gradients_taken_elements"] == 3 * EVERY * (ACTOR + CRITIC)


def test_only_the_part_of_an_ensemble_that_was_written_counts(counted):
    critics = nn.ModuleList([nn.Linear(3, 1), nn.Linear(3, 1)])
    actor = nn.Linear(2, 3)
    critic_opt, actor_opt = (torch.optim.SGD(each.parameters(), lr=0.1) for each in (critics, actor))
    x, y = torch.randn(4, 2), torch.randn(4, 3)

    def work() -> None:
        for _ in range(STEPS):
            critic_opt.zero_grad()
            sum(each(y).mean() for each in critics).backward()
            critic_opt.step()
            actor_opt.zero_grad()
            critics[0](actor(x)).mean().backward()
            actor_opt.step()

    assert counted(work)["gradients_dropped_elements"] == 3 * EVERY * 4


def test_one_loss_for_both_and_a_shared_body_are_not_judged_as_dropped(counted):
    body, one, two = nn.Linear(4, 4), nn.Linear(4, 1), nn.Linear(4, 1)
    first = torch.optim.Adam([*body.parameters(), *one.parameters()])
    second = torch.optim.Adam([*body.parameters(), *two.parameters()])
    x = torch.randn(8, 4)

    def work() -> None:
        for _ in range(STEPS):
            first.zero_grad()
            second.zero_grad()
            (one(body(x)) + two(body(x))).mean().backward()
            first.step()
            second.step()

    assert counted(work)["gradients_dropped_elements"] == 0


def test_gradients_that_add_up_over_several_losses_are_taken(counted):
    net = nn.Linear(4, 1)
    optimiser = torch.optim.Adam(net.parameters())
    x = torch.randn(8, 4)

    def work() -> None:
        for _ in range(STEPS):
            optimiser.zero_grad()
            for part in x.split(2):
                net(part).mean().backward()
            optimiser.step()

    seen = counted(work)
    assert (seen["gradients_dropped_elements"], seen["gradients_taken_elements"]) == (0, 3 * EVERY * 5)


def test_what_a_closure_zeroes_within_a_step_was_taken(counted):
    net = nn.Linear(4, 1)
    optimiser = torch.optim.LBFGS(net.parameters(), max_iter=3)
    x = torch.randn(8, 4)

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss = (net(x) - 1).pow(2).mean()
        loss.backward()
        return loss

    assert counted(lambda: [optimiser.step(closure) for _ in range(STEPS)])["gradients_dropped_elements"] == 0
