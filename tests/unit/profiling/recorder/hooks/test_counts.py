"""What the hooks see of a program: span names with their nesting, and exact counts."""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("gymnasium")
pytest.importorskip("torch")

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.nn.utils import clip_grad_value_

from hotloop.profiling.recorder.hooks import install, new_state
from hotloop.spans import hot_path, registry

torch.set_num_threads(1)


@dataclass(frozen=True)
class Seen:
    """What was recorded: calls by path, phases by name, counters, and counters by innermost span."""

    calls: Counter[str]
    phases: dict[str, str | None]
    counts: Counter[str]
    counted_in: Counter[tuple[str, str]]


def read(logs: list[hot_path.Log]) -> Seen:
    known = registry.known_spans()
    counters = {code: name for name, code in registry.known_counters().items()}
    seen = Seen(Counter(), {}, Counter(), Counter())
    for log in logs:
        stack: list[str] = []
        for code, value in zip(log.events[::2], log.events[1::2], strict=True):
            if code >= registry.COUNTER_BASE:
                seen.counts[counters[code]] += value
                seen.counted_in[counters[code], stack[-1] if stack else ""] += value
            elif code > 0:
                stack.append(known[code - 1].name)
                seen.calls[" > ".join(stack)] += 1
                seen.phases[known[code - 1].name] = known[code - 1].phase
            else:
                assert stack.pop() == known[-code - 1].name
        assert stack == []
    return seen


Record = Callable[[Callable[[], Any]], Seen]


@pytest.fixture
def record() -> Iterator[Record]:
    uninstall = install()

    def run(work: Callable[[], Any]) -> Seen:
        logs = registry.listen()
        before = {each.name: each.read() for each in registry.known_tallies()}
        try:
            work()
        finally:
            registry.hush()
        seen = read(logs)
        for each in registry.known_tallies():
            seen.counts[each.name] += each.read() - before.get(each.name, 0)
        return seen

    yield run
    registry.hush()
    uninstall()


def play(env: Any, steps: int) -> int:
    """Step with resets; return how many episodes ended."""
    ended = 0
    env.reset(seed=1)
    for i in range(steps):
        _, _, terminated, truncated, _ = env.step(i % 2)
        if terminated or truncated:
            ended += 1
            env.reset()
    return ended


def test_single_environment_is_counted_once_through_all_wrappers(record: Record) -> None:
    env = gymnasium.make("CartPole-v1", max_episode_steps=20)
    ended: list[int] = []
    seen = record(lambda: ended.append(play(env, 100)))
    assert ended[0] > 0
    assert seen.counts["env_steps"] == seen.counts["vector_steps"] == seen.counts["frames"] == 100
    assert seen.counts["episodes"] == ended[0]
    chain = "TimeLimit.step > OrderEnforcing.step > PassiveEnvChecker.step > CartPoleEnv.step"
    assert seen.calls[chain] == 100
    assert seen.phases["CartPoleEnv.step"] == "env"
    assert seen.counted_in["frames", "CartPoleEnv.step"] == 100
    assert seen.counted_in["env_steps", "TimeLimit.step"] == 100


@pytest.mark.parametrize("mode", ["sync", "vector_entry_point"])
def test_vector_environment_counts_each_of_its_environments(record: Record, mode: str) -> None:
    env = gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode=mode)
    ends: list[int] = []

    def work() -> None:
        env.reset(seed=1)
        for i in range(60):
            _, _, terminated, truncated, _ = env.step(np.full(3, i % 2))
            ends.append(int(np.count_nonzero(terminated | truncated)))

    seen = record(work)
    assert sum(ends) > 0
    assert seen.counts["vector_steps"] == 60
    assert seen.counts["env_steps"] == 180
    assert seen.counts["episodes"] == sum(ends)
    # In the step after an episode's end, the vector of environments resets that one and does not step it.
    resets = sum(ends[:-1]) if mode == "sync" else 0
    assert seen.counts["frames"] == 180 - resets


def test_frames_are_what_the_innermost_environment_steps(record: Record) -> None:
    class Skip(gymnasium.Wrapper):
        def step(self, action: Any) -> Any:
            for _ in range(3):
                super().step(action)
            return super().step(action)

    env = Skip(gymnasium.make("CartPole-v1", max_episode_steps=1000).unwrapped)

    def work() -> None:
        env.reset(seed=1)
        env.step(0)

    seen = record(work)
    assert seen.counts["env_steps"] == 1
    assert seen.counts["frames"] == 4
    assert seen.calls["Skip.step > CartPoleEnv.step"] == 4


class Grid:
    """A hand-written environment: the shape of one, and no base class."""

    def __init__(self, n: int) -> None:
        self.n = n

    def reset(self) -> Any:
        return self._get_obs()

    def step(self, actions: Any) -> Any:
        self.draw_board()
        return self._get_obs(), torch.zeros(self.n), torch.tensor([True] + [False] * (self.n - 1))

    def _get_obs(self) -> Any:
        return torch.zeros(self.n, 2)

    def draw_board(self) -> None:
        pass


def test_hand_written_environment_is_known_by_its_shape(record: Record) -> None:
    env = Grid(5)

    def work() -> None:
        env.reset()
        env.step(None)
        env.step(None)

    seen = record(work)
    assert (seen.counts["env_steps"], seen.counts["frames"], seen.counts["episodes"]) == (10, 10, 2)
    assert seen.calls["Grid.step > Grid._get_obs"] == 2
    assert (seen.phases["Grid._get_obs"], seen.phases["Grid.draw_board"]) == ("observe", "render")
    assert seen.counts["host_syncs.numpy"] == 0, "looking at the result is not the program's sync"


def test_an_agent_and_a_noise_with_step_and_reset_are_not_environments(record: Record) -> None:
    class Agent:
        def reset(self) -> None: ...
        def act(self) -> None: ...
        def step(self, state: Any) -> None: ...

    class Noise:
        def reset(self) -> None: ...
        def step(self) -> None: ...

    seen = record(lambda: (Agent().step(0), Noise().step()))
    assert seen.calls == Counter()


def test_a_step_that_fails_closes_its_span_and_raises_the_same(record: Record) -> None:
    error = RuntimeError("broken")

    class Broken:
        def reset(self) -> None: ...
        def step(self, action: int) -> None:
            raise error

    def work() -> None:
        with pytest.raises(RuntimeError) as caught:
            Broken().step(1)
        assert caught.value is error
        Grid(1).step(None)

    seen = record(work)
    assert seen.calls["Broken.step"] == 1
    assert seen.counts["env_steps"] == 1, "the depth is right again after the failure"


class Transition(NamedTuple):
    state: np.ndarray
    reward: float


class ReplayMemory:
    """A hand-written replay: a list of transitions."""

    def __init__(self) -> None:
        self.items: list[Transition] = []

    def push(self, state: np.ndarray, reward: float) -> None:
        self.items.append(Transition(state, reward))

    def sample(self, n: int) -> Any:
        return np.stack([item.state for item in self.items[:n]]), torch.zeros(n)

    def sample_rows(self, n: int) -> list[Transition]:
        return self.items[:n]


def test_hand_written_replay_counts_bytes_in_and_out(record: Record) -> None:
    memory = ReplayMemory()

    def work() -> None:
        for _ in range(4):
            memory.push(np.zeros(8, np.float32), 1.0)
        memory.sample(2)
        memory.sample_rows(3)

    seen = record(work)
    assert (seen.calls["ReplayMemory.push"], seen.calls["ReplayMemory.sample"]) == (4, 1)
    assert (seen.phases["ReplayMemory.push"], seen.phases["ReplayMemory.sample"]) == ("store", "sample")
    assert seen.counts["replay_adds_bytes"] == 4 * 32
    assert seen.counted_in["replay_bytes", "ReplayMemory.sample"] == 2 * 32 + 2 * 4
    assert seen.counted_in["replay_bytes", "ReplayMemory.sample_rows"] == 3 * 32


def test_an_agent_that_remembers_and_samples_actions_is_not_a_replay(record: Record) -> None:
    class Agent:
        def remember(self, x: Any) -> None: ...
        def sample_action(self) -> None: ...

    class Policy(nn.ModuleList):
        def sample(self) -> None: ...

    agent, policy = Agent(), Policy()
    seen = record(lambda: (agent.remember(1), agent.sample_action(), policy.append(nn.ReLU()), policy.sample()))
    assert seen.calls == Counter()


def test_rollout_generator_is_timed_only_while_it_runs(record: Record) -> None:
    class RolloutBuffer:
        def add(self, x: Any) -> None: ...

        def get(self, n: int) -> Iterator[np.ndarray]:
            for _ in range(n):
                yield np.zeros(4)

    def work() -> None:
        for _ in RolloutBuffer().get(2):
            time.sleep(0)

    seen = record(work)
    assert seen.calls == Counter({"RolloutBuffer.get": 3, "time.sleep": 2})
    assert seen.counts["replay_bytes"] == 64


def update(net: nn.Module, optimiser: torch.optim.Optimizer) -> None:
    loss = net(torch.ones(5, 4)).pow(2).mean()
    optimiser.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimiser.step()


def test_an_update_is_seen_part_by_part(record: Record) -> None:
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1))
    optimiser = torch.optim.AdamW(net.parameters())
    seen = record(lambda: [update(net, optimiser) for _ in range(3)])
    assert seen.calls == Counter(
        dict.fromkeys(["Sequential", "AdamW.zero_grad", "backward", "clip_grad_norm_", "AdamW.step"], 3)
    )
    assert seen.counts["updates"] == 3
    assert seen.counts["host_syncs.item"] == 0, "what the optimiser reads is not the program's sync"
    forward = 2 * 5 * (4 * 3 + 3 * 1)
    assert seen.counted_in["flops", "Sequential"] == 3 * forward
    assert seen.counted_in["flops", "backward"] == 3 * 2 * forward
    assert [seen.phases[n] for n in ("Sequential", "backward", "AdamW.step")] == [
        "forward",
        "backward",
        "optimise",
    ]


def test_a_function_imported_by_name_before_the_hooks_is_seen(record: Record) -> None:
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    assert record(lambda: clip_grad_value_([weight], 0.5)).calls == Counter({"clip_grad_value_": 1})


def test_environments_in_processes_are_counted_where_they_are_asked_for(record: Record) -> None:
    env = gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="async")

    def work() -> None:
        env.reset(seed=1)
        for _ in range(5):
            env.step(np.zeros(2, np.int64))

    try:
        seen = record(work)
    finally:
        env.close()
    assert (seen.counts["vector_steps"], seen.counts["env_steps"], seen.counts["frames"]) == (5, 10, 10)
    assert seen.phases["AsyncVectorEnv.step_wait"] == "env"
    assert any(path.startswith("AsyncVectorEnv.step > AsyncVectorEnv.step_wait > ") for path in seen.calls)


def test_convolutions_have_flops(record: Record) -> None:
    net = nn.Conv2d(3, 8, kernel_size=3)
    seen = record(lambda: (net(torch.zeros(2, 3, 10, 10)), net(torch.zeros(1, 3, 10, 10))))
    assert seen.counts["flops"] == 2 * 3 * (8 * 8 * 8) * (3 * 9)


def test_depth_of_module_calls(record: Record) -> None:
    net = nn.Sequential(nn.Sequential(nn.Linear(2, 2)), nn.ReLU())
    new_state(2)
    seen = record(lambda: net(torch.zeros(1, 2)))
    assert seen.calls == Counter({"Sequential": 1, "Sequential > Sequential": 1, "Sequential > ReLU": 1})
    assert seen.counts["flops"] == 8


def test_updates_are_those_of_one_optimiser(record: Record) -> None:
    critic, actor = nn.Linear(4, 1), nn.Linear(4, 1)
    critic_optimiser = torch.optim.SGD(critic.parameters(), lr=0.1)
    actor_optimiser = torch.optim.SGD(actor.parameters(), lr=0.1)

    def work() -> None:
        for _ in range(10):
            update(critic, critic_optimiser)
            update(actor, actor_optimiser)
        for _ in range(60):
            update(actor, actor_optimiser)

    # The actor takes over at its 50th step since the critic's last, the 49th of the second loop.
    assert record(work).counts["updates"] == 10 + 12


def test_host_syncs_are_counted_by_kind(record: Record) -> None:
    x = torch.ones(3)

    def work() -> None:
        x.sum().item()
        float(x[0])
        assert bool(x[0] > 0)
        x.cpu().numpy()
        x.tolist()
        np.asarray(x)

    seen = record(work)
    assert {name: n for name, n in seen.counts.items() if n} == {
        "host_syncs.item": 3, "host_syncs.cpu": 1, "host_syncs.numpy": 2, "host_syncs.tolist": 1
    }  # fmt: skip
    assert seen.calls == Counter()


def test_waiting_is_seen(record: Record) -> None:
    box: queue.Queue[int] = queue.Queue()
    thread = threading.Thread(target=lambda: None)
    thread.start()

    def work() -> None:
        time.sleep(0.001)
        box.put(1)
        box.get()
        thread.join()

    seen = record(work)
    assert seen.calls == Counter({"time.sleep": 1, "Queue.put": 1, "Queue.get": 1, "Thread.join": 1})
    assert set(seen.phases.values()) == {"wait"}


def test_multiprocessing_locks_and_pipes_are_seen(record: Record) -> None:
    import multiprocessing

    def work() -> None:
        context = multiprocessing.get_context("spawn")
        lock = context.Lock()
        with lock:
            pass
        lock.acquire()
        lock.release()
        a, b = context.Pipe()
        a.send("x")
        assert b.recv() == "x"
        a.close()
        b.close()

    seen = record(work)
    assert seen.calls["Lock.acquire"] == 2
    assert (seen.phases["Connection.send"], seen.phases["Connection.recv"]) == ("transfer", "wait")


def test_saying_and_saving_are_seen(record: Record, tmp_path: Path, capsys: Any) -> None:
    from torch.utils.tensorboard import SummaryWriter

    net = nn.Linear(1, 1)

    def work() -> None:
        print("hello")
        writer = SummaryWriter(str(tmp_path))
        writer.add_scalar("x", 1.0, 0)
        writer.close()
        torch.save(net.state_dict(), tmp_path / "net.pt")
        net.load_state_dict(torch.load(tmp_path / "net.pt"))

    seen = record(work)
    assert capsys.readouterr().out == "hello\n"
    names = {"print": "log", "SummaryWriter.add_scalar": "log", "torch.save": "checkpoint",
             "torch.load": "checkpoint", "Linear.load_state_dict": "sync weights"}  # fmt: skip
    for name, phase in names.items():
        assert (seen.calls[name], seen.phases[name]) == (1, phase)


def test_transfers_between_devices_are_timed_and_counted(record: Record) -> None:
    """There is no device here, so the wrapper for builds that know one is given a stand-in tensor."""
    from hotloop.profiling.recorder.hooks.torch.tensors import moving, syncing_device

    class Fake:
        def __init__(self, device: str) -> None:
            self.device, self.is_cpu, self.nbytes = device, device == "cpu", 40

    each = registry.hook_span("Tensor.test", registry.Phase.TRANSFER)
    cpu = syncing_device(lambda self: Fake("cpu"), "host_syncs.cpu", each, set())
    to = moving(lambda self, device: self if device == self.device else Fake(device), each)

    def work() -> None:
        cpu(Fake("cpu"))
        cpu(Fake("cuda"))
        to(Fake("cpu"), "cpu")
        to(Fake("cpu"), "cuda")

    seen = record(work)
    assert seen.counts["host_syncs.cpu"] == 2
    assert seen.counts["transfer_bytes"] == 80
    assert seen.calls["Tensor.test"] == 3
