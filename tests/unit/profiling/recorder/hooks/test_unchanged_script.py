"""Hooks change nothing: not results, not classes, not what others make of them; and they can be removed."""

from __future__ import annotations

import builtins
import inspect
import pickle
import subprocess
import sys
import textwrap
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cloudpickle")
pytest.importorskip("gymnasium")
pytest.importorskip("torch")

import cloudpickle
import gymnasium
import numpy as np
import torch
from torch import nn

from hotloop.profiling.recorder.hooks import install, new_state
from hotloop.profiling.recorder.hooks.patching import Patches
from hotloop.profiling.recorder.hooks.wrappers import is_wrapper
from hotloop.spans import registry

torch.set_num_threads(1)


@pytest.fixture
def hooked() -> Iterator[None]:
    uninstall = install()
    registry.listen()
    yield
    registry.hush()
    uninstall()


def with_hooks(work: Callable[[], Any]) -> Any:
    uninstall = install()
    registry.listen()
    try:
        return work()
    finally:
        registry.hush()
        uninstall()


def flat(net: nn.Module) -> list[torch.Tensor]:
    return [value.clone() for value in net.state_dict().values()]


def assert_identical(a: list[torch.Tensor], b: list[torch.Tensor]) -> None:
    assert len(a) == len(b) > 0
    assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("name", ["DQN", "PPO"])
def test_sb3_learns_bit_identical_weights(name: str) -> None:
    import stable_baselines3

    def learn() -> list[torch.Tensor]:
        options = {"learning_starts": 50} if name == "DQN" else {"n_steps": 64, "n_epochs": 2}
        model = getattr(stable_baselines3, name)("MlpPolicy", "CartPole-v1", seed=3, device="cpu", **options)
        return flat(model.learn(160).policy)

    assert_identical(learn(), with_hooks(learn))


class Agent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.Tanh())
        self.head = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def compiled_results() -> list[torch.Tensor]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    agent, x = Agent(), torch.randn(4, 6)
    whole = torch.compile(agent, fullgraph=True, backend="aot_eager")
    inside = torch.compile(lambda x: agent(x) * 2, fullgraph=True, backend="aot_eager")
    optimiser = torch.optim.Adam(agent.parameters())

    def update(x: torch.Tensor) -> torch.Tensor:
        optimiser.zero_grad()
        loss = agent(x).pow(2).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 1.0)
        optimiser.step()
        return loss.detach()

    compiled = torch.compile(update, backend="aot_eager")
    results = [whole(x).detach(), inside(x).detach(), compiled(x), compiled(x)]
    return results + flat(agent)


@pytest.mark.filterwarnings("ignore")
def test_compiled_functions_compile_as_before_and_give_the_same_numbers() -> None:
    assert_identical(compiled_results(), with_hooks(compiled_results))


@pytest.mark.filterwarnings("ignore")
def test_scripted_traced_and_exported_modules_still_work(hooked: None) -> None:
    agent, x = Agent(), torch.randn(4, 6)
    expected = agent(x)
    for made in (
        torch.jit.script(agent),
        torch.jit.trace(agent, x),
        torch.fx.symbolic_trace(agent),
        torch.export.export(agent, (x,)).module(),
    ):
        assert torch.equal(made(x), expected)


ATTRIBUTES: list[tuple[Any, str]] = [
    (builtins, "print"), (builtins, "__build_class__"), (time, "sleep"), (torch.Tensor, "item"),
    (torch.Tensor, "__bool__"), (nn.Module, "__call__"), (torch.autograd, "backward"),
    (torch.optim.Adam, "step"), (torch.optim.Optimizer, "zero_grad"), (nn.utils, "clip_grad_norm_"),
    (gymnasium.Wrapper, "step"),
]  # fmt: skip


def test_uninstall_puts_back_every_attribute() -> None:
    install()()  # torch's own wrapper of the optimisers' step, put there once, stays
    before = [(vars(owner).get(name), getattr(owner, name)) for owner, name in ATTRIBUTES]
    finders = list(sys.meta_path)
    uninstall = install()
    changed = [getattr(owner, name) for owner, name in ATTRIBUTES]
    uninstall()
    assert [(vars(owner).get(name), getattr(owner, name)) for owner, name in ATTRIBUTES] == before
    assert all(new is not old for new, (_, old) in zip(changed, before, strict=True))
    assert sys.meta_path == finders


def test_installing_twice_is_installing_once() -> None:
    uninstall = install()
    step = torch.optim.SGD.step
    assert install() is uninstall
    assert torch.optim.SGD.step is step
    assert not is_wrapper(step.__wrapped__)
    uninstall()
    uninstall()


def test_a_negative_depth_is_refused() -> None:
    with pytest.raises(ValueError, match="modules_depth is -1"):
        new_state(-1)


class Env(gymnasium.Env):
    """An environment of an importable module."""

    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin."""
        return 0, {}

    def step(self, action: int, scale: float = 1.0) -> Any:
        return 0, scale, False, False, {}

    @staticmethod
    def draw() -> int:
        return 7

    @classmethod
    def render_all(cls) -> str:
        return cls.__name__


def test_signature_docstring_name_and_other_kinds_of_method_stay(hooked: None) -> None:
    assert is_wrapper(Env.step)
    assert list(inspect.signature(Env.step).parameters) == ["self", "action", "scale"]
    assert (Env.reset.__name__, Env.reset.__doc__, Env.reset.__qualname__) == ("reset", "Begin.", "Env.reset")
    assert (Env.draw(), Env.render_all()) == (7, "Env")
    assert Env().step(0, scale=3.0)[1] == 3.0


SENT = """
class Base:
    def reset(self): return 0
    def step(self, action): return 0, 1.0, False

class Walk(Base):
    def step(self, action): return super().step(action)
"""
RECEIVE = """
import pickle, sys
before = set(sys.modules)
walk = pickle.load(sys.stdin.buffer)
print(walk.step.__qualname__, walk().step(0), [name for name in sys.modules if name not in before])
"""


def test_a_class_sent_by_value_arrives_as_it_was_written(hooked: None, monkeypatch: pytest.MonkeyPatch) -> None:
    class Local(Env):
        def step(self, action: int, scale: float = 1.0) -> Any:
            return super().step(action, scale=2.0)

    assert is_wrapper(Local.step)
    assert pickle.loads(cloudpickle.dumps(Local)) is Local, "in the process it came from it is known already"
    main = types.ModuleType("__main__")  # pytest's own is a library's program, whose classes are not hooked
    monkeypatch.setitem(sys.modules, "__main__", main)
    exec(SENT, main.__dict__)
    assert is_wrapper(main.Walk.step) and is_wrapper(main.Base.step)
    sent = cloudpickle.dumps(main.Walk)
    done = subprocess.run([sys.executable, "-c", RECEIVE], input=sent, capture_output=True, check=True)
    name, rest = done.stdout.decode().split(maxsplit=1)
    assert name.endswith("Walk.step") and rest.startswith("(0, 1.0, False) ")
    assert "hotloop" not in rest, "unpickling must not import hotloop: the receiver may not have it"


def test_a_class_that_arrives_is_hooked(hooked: None, monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
        import cloudpickle, pickle, sys
        class Walk:
            def reset(self): return 0
            def step(self, action): return 0, 1.0, False
        sys.stdout.buffer.write(cloudpickle.dumps(Walk))
    """
    data = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, check=True).stdout
    # In a worker process, __main__ is not a program of a library as it is under pytest.
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))
    walk = pickle.loads(data)
    assert is_wrapper(walk.step)
    assert walk().step(0) == (0, 1.0, False)


def test_numba_compiles_a_hooked_class(hooked: None) -> None:
    numba = pytest.importorskip("numba")
    from numba.experimental import jitclass

    class Walk:
        def __init__(self) -> None:
            self.x = 0

        def reset(self) -> int:
            self.x = 0
            return 0

        def step(self, action: int) -> int:
            self.x += action
            return self.x

    walk = jitclass([("x", numba.int64)])(Walk)()
    assert walk.step(2) == 2


def test_what_cannot_be_hooked_is_reported_once_and_left(capsys: pytest.CaptureFixture[str]) -> None:
    patches = Patches()

    def fail() -> None:
        raise TypeError("no")

    patches.attempt("x", fail)
    patches.attempt("x", fail)
    assert capsys.readouterr().err == "hotloop: cannot hook x, and goes on without: TypeError('no')\n"


def test_hooks_before_any_import_see_a_script_and_keep_nothing_alive(tmp_path: Path) -> None:
    """The way of `hotloop run`: installed first, in a process that has imported nothing."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["Net", "Sim.step", "SGD.step", "backward", "clip_grad_norm_", "7", "freed"]


SCRIPT = """
    import sys
    from hotloop.spans import registry as spans
    from hotloop.profiling.recorder.hooks import install, new_state
    assert "torch" not in sys.modules
    uninstall = install()
    logs = spans.listen()
    import gc, weakref
    import torch
    from torch.nn.utils import clip_grad_norm_

    class Sim:
        def reset(self): return torch.zeros(3)
        def step(self, action): return torch.zeros(3), 1.0, False, False, {}

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(3, 1)
        def forward(self, x): return self.a(x)

    def main():
        net, sim = Net(), Sim()
        optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(7):
            state, *_ = sim.step(net(torch.ones(3)))
        net(state).sum().backward()
        clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
        return weakref.ref(net), weakref.ref(sim), weakref.ref(optimiser)

    refs = main()
    gc.collect()
    spans.hush()
    uninstall()
    names = [spans.known_spans()[c - 1].name for c in logs[0].events[::2] if 0 < c < spans.COUNTER_BASE]
    for name in ("Net", "Sim.step", "SGD.step", "backward", "clip_grad_norm_"):
        assert name in names, (name, names)
        print(name)
    print(names.count("Sim.step"))
    print("freed" if all(ref() is None for ref in refs) else "kept alive")
"""


def test_arrays_given_to_hooked_methods_are_the_same_objects(hooked: None) -> None:
    class Memory:
        def push(self, x: np.ndarray) -> np.ndarray:
            return x

        def sample(self, n: int) -> np.ndarray:
            return self.kept

        kept = np.zeros(2)

    x = np.ones(3)
    memory = Memory()
    assert memory.push(x) is x
    assert memory.sample(1) is Memory.kept
