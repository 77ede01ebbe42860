"""The two wrappers of an environment's step, in Python and in C, see the same."""

from __future__ import annotations

import inspect
import threading
from typing import Any

import numpy as np
import pytest
from tests.counting import counted_and_open

from hotloop.phases import Phase
from hotloop.profiling.recorder.hooks.environments import stepping, stepping_in_python
from hotloop.profiling.recorder.hooks.state import HookState
from hotloop.profiling.recorder.hooks.wrappers import SpansByType, is_wrapper
from hotloop.spans import hot_path, registry

needs_c = pytest.mark.skipif(hot_path.Step is None, reason="the accelerator is not built: `make test` builds it")
BOTH = pytest.mark.parametrize("wrap", [stepping_in_python, pytest.param(stepping, marks=needs_c)])
OUTCOMES = {
    "goes on": (0, 1.0, False, False, {}),
    "terminated": (0, 1, True, False, {}),
    "truncated": (0, np.float64(1), False, True, {}),
    "numpy flags": (0, 1.0, np.bool_(True), np.bool_(False), {}),
    "four fields": (0, 1.0, True, {}),
    "vector": (0, np.ones(3), np.array([True, False, False]), np.array([False, True, False]), {}),
    "list": (0, [1.0, 1.0], [True, False], [False, False], {}),
    "no tuple": None,
    "two fields": (0, 1.0),
}


def make_env(wrap: Any, inner: Any = None) -> Any:
    class Env:
        def step(self, action: Any, *, scale: int = 1) -> Any:
            """Do it."""
            if isinstance(action, Exception):
                raise action
            return inner.step(action) if inner is not None else action

    plain = Env.step
    by_type = SpansByType(Env, "step", Phase.ENV)
    by_type[Env] = registry.hook_span(f"{wrap.__name__}.{'outer' if inner else 'inner'}.step", Phase.ENV)
    Env.step = wrap(plain, by_type, HookState())
    return Env()


@needs_c
@pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=OUTCOMES)
def test_both_count_the_same(outcome):
    seen = []
    for wrap in (stepping_in_python, stepping):
        env = make_env(wrap, make_env(wrap))
        results = []
        seen.append(counted_and_open(lambda env=env, results=results: results.append(env.step(outcome))))
        assert results[0] is outcome
    assert seen[0] == seen[1]
    assert seen[0][0]["vector_steps"] == 1


@BOTH
def test_wrappers_nest_with_the_other_kind(wrap):
    other = stepping_in_python if wrap is stepping or hot_path.Step is None else stepping
    env = make_env(wrap, make_env(other))
    counts, balance = counted_and_open(lambda: [env.step((0, 1.0, False, False, {})) for _ in range(5)])
    assert (counts, balance) == ({"vector_steps": 5, "env_steps": 5, "frames": 5}, 0)


@BOTH
def test_a_failing_step_closes_its_span_and_the_next_is_outermost_again(wrap):
    env = make_env(wrap, make_env(wrap))

    def work() -> None:
        with pytest.raises(KeyError, match="lost"):
            env.step(KeyError("lost"))
        env.step((0, 1.0, True, False, {}))

    assert counted_and_open(work) == ({"vector_steps": 1, "env_steps": 1, "frames": 1, "episodes": 1}, 0)


@BOTH
def test_it_looks_like_the_function_it_stands_for(wrap):
    env = make_env(wrap)
    step = type(env).step
    assert is_wrapper(step)
    assert (step.__name__, step.__doc__) == ("step", "Do it.")
    assert str(inspect.signature(step)) == "(self, action: 'Any', *, scale: 'int' = 1) -> 'Any'"
    assert env.step(7) == env.step(action=7, scale=2) == step(env, 7) == 7
    assert env.step.__self__ is env


@BOTH
def test_nothing_is_written_while_nothing_records(wrap):
    env = make_env(wrap)
    hot_path.listen()
    env.step((0, 1.0, True, False, {}))
    assert [log.events for log in hot_path.open_logs() if log.events] == []


@BOTH
def test_each_thread_has_its_own_depth(wrap):
    inside, done = threading.Event(), threading.Event()

    class Slow:
        def step(self, action: Any) -> Any:
            inside.set()
            assert done.wait(10)
            return action

    slow, quick = make_env(wrap, Slow()), make_env(wrap)
    outcome = (0, 1.0, False, False, {})

    def work() -> None:
        thread = threading.Thread(target=slow.step, args=(outcome,))
        thread.start()
        assert inside.wait(10)
        quick.step(outcome)
        done.set()
        thread.join()

    assert counted_and_open(work)[0]["vector_steps"] == 2
