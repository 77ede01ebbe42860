"""Each recording has a state of its own: the second in a process contains nothing of the first."""

from __future__ import annotations

import json
import multiprocessing
import os
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from hotloop.profiling.recorder.hooks import install, new_state
from hotloop.profiling.recorder.hooks.torch.dropped_gradients import EVERY
from hotloop.profiling.recorder.session import record


class Actor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def train_wastefully() -> None:
    """Leave every kind of fact: threads set, gradients dropped, a layer called, a timing printed."""
    torch.set_num_threads(1)
    actor, critic = Actor(), nn.Linear(2, 1)
    optimisers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (actor, critic)]
    x = torch.ones(3, 4)
    for _ in range(2 * EVERY + 1):
        for optimiser in optimisers:
            optimiser.zero_grad()
            critic(actor(x)).mean().backward()
            optimiser.step()
    print("update took 12 ms")


def manifest_of(run: Path) -> dict:
    return json.loads((run / "run.json").read_text())


def test_a_second_recording_does_not_contain_the_facts_of_the_first(tmp_path, capsys):
    with record(tmp_path / "first", hooks=True):
        train_wastefully()
    with record(tmp_path / "second", hooks=True):
        torch.ones(1).item()
    first, second = (manifest_of(tmp_path / name)["torch"] for name in ("first", "second"))
    assert first["set_at"][0] == first["gradients_dropped_at"][0] == __file__
    assert set(second) == {"threads", "interop_threads"}
    (claims,) = (tmp_path / "first").glob("*/claims.json")
    content = json.loads(claims.read_text())
    assert ([row["path"] for row in content["claims"]], len(content["layers"])) == ([["update"]], 2)
    assert not list((tmp_path / "second").glob("*/claims.json"))


def test_a_second_recording_finds_the_same_facts_again(tmp_path, capsys):
    for name in ("first", "second"):
        with record(tmp_path / name, hooks=True):
            train_wastefully()
    first, second = (tmp_path / "first", tmp_path / "second")
    assert manifest_of(first)["torch"] == manifest_of(second)["torch"]
    texts = [next(run.glob("*/claims.json")).read_text() for run in (first, second)]
    assert texts[0] == texts[1]


def facts_in_child(state, answer: Connection) -> None:
    inherited = new_state()
    answer.send((inherited is state, inherited.threads_set_at, len(inherited.gradients.dropped_at)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_clears_the_state_of_the_hooks_that_it_inherits():
    state = new_state()
    uninstall = install(state)
    try:
        torch.set_num_threads(1)
        assert state.threads_set_at is not None
        ours, theirs = multiprocessing.Pipe()
        child = multiprocessing.get_context("fork").Process(target=facts_in_child, args=(state, theirs))
        child.start()
        assert ours.recv() == (True, None, 0)
        child.join()
    finally:
        uninstall()
    assert new_state() is not state
