"""Closer looks: exact counts of calls, exact corrections, a pause that leaves no trace in the other tables."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import CodeType, SimpleNamespace
from typing import Any

import pytest
from tests.scripted import START_NS, scripted_run

from hotloop.errors import HotloopError
from hotloop.profiling.recorder.deep import functions as calls
from hotloop.profiling.recorder.deep import functions_reference
from hotloop.profiling.recorder.deep.functions import Costs, Native
from hotloop.profiling.recorder.deep.operators import nested
from hotloop.profiling.recorder.deep.pause import Pause
from hotloop.profiling.recorder.hooks import environments
from hotloop.profiling.recorder.record_options import RecordOptions
from hotloop.profiling.recorder.session import record
from hotloop.profiling.trace.deep import Pace, Traced, build_traced
from hotloop.profiling.trace.load import load
from hotloop.profiling.trace.reading.run_files import read_looks
from hotloop.spans import hot_path, registry

FREE = Costs(0.0, 0.0, 1.0)
HERE = os.path.dirname(os.path.abspath(calls.__file__))
TRACERS = {each.__module__: each for each in (calls.Tracer, functions_reference.Tracer)}


@pytest.fixture(params=TRACERS.values(), ids=TRACERS.keys())
def tracer(request: pytest.FixtureRequest) -> Iterator[Any]:
    made = request.param(calls.describe)
    yield made
    sys.setprofile(None)


def leaf(value: int) -> int:
    return abs(value)


def branch(n: int) -> int:
    return sum([leaf(i) for i in range(n)])


def raising() -> None:
    raise KeyError


def climbing(n: int) -> int:
    return climbing(n - 1) if n else 0


def counting(n: int) -> Iterator[int]:
    yield from range(n)


def traced(tracer: Any, work: Callable[[], Any], began: tuple[CodeType, ...] = ()) -> dict[str, Any]:
    tracer.start(began)
    try:
        work()
    finally:
        tracer.stop()
    return calls.collect(tracer, began, FREE)


def by_name(content: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in content["functions"]}


def test_calls_are_counted_exactly_by_function_and_by_path(tracer):
    def work() -> None:
        branch(5)
        branch(2)
        leaf(1)

    content = traced(tracer, work)
    rows = by_name(content)
    assert (rows["branch"]["calls"], rows["leaf"]["calls"], rows["abs"]["calls"]) == (2, 8, 8)
    assert (rows["leaf"]["kind"], rows["abs"]["kind"], rows["leaf"]["file"]) == ("own", "native", __file__)
    assert rows["abs"]["calls_from_own"] == 8
    numbers = {row["function"]: row["name"] for row in content["functions"]}
    # Which branches are kept depends on how long they took: ask the tracer itself.
    nodes, names = tracer.nodes(), [getattr(each, "co_qualname", None) or each.name for each in tracer.known()]
    paths = {}
    for parent, function, n, _ in nodes[1:]:
        above = nodes[parent][1]
        paths[names[above] if above >= 0 else "", names[function]] = n
    name = work.__qualname__
    assert paths[name, "branch"] == 2
    assert paths[name, "leaf"] == 1
    # From 3.12 on, a comprehension is part of the function that it is in.
    caller = "branch" if sys.version_info >= (3, 12) else "branch.<locals>.<listcomp>"
    assert paths[caller, "leaf"] == 7
    assert set(numbers.values()) >= {"branch", "leaf", "abs", name}


def test_self_times_add_up_to_the_whole(tracer):
    # Long enough for what comes before the first call, and a turn of another process there, to be little of it.
    content = traced(tracer, lambda: [branch(300) for _ in range(400)])
    whole = content["wall_ns"] - content["spent_ns"]
    assert content["lost"] == 0
    assert content["spent_ns"] > 0
    kept = sum(row["self_ns"] for row in content["functions"]) + content["recorder_ns"]
    # Rounding, and what is open at the root before the first call.
    assert kept == pytest.approx(whole, rel=0.02)
    rows = by_name(content)
    total = rows["branch"]["python_ns"] + rows["branch"]["native_ns"]
    assert total >= rows["branch"]["self_ns"] + rows["leaf"]["self_ns"]


def test_errors_recursion_and_generators_leave_the_tree_whole(tracer):
    def work() -> None:
        for _ in range(3):
            try:
                raising()
            except KeyError:
                pass
        climbing(4)
        list(counting(2))
        leaf(1)

    content = traced(tracer, work)
    rows = by_name(content)
    assert (rows["raising"]["calls"], rows["climbing"]["calls"], rows["leaf"]["calls"]) == (3, 5, 1)
    assert rows["counting"]["calls"] == 3, "resumed twice for a value, once for its end"
    # The total of a recursive function is that of its outermost call.
    assert rows["climbing"]["python_ns"] == pytest.approx(rows["climbing"]["self_ns"], abs=5)
    assert sys.getprofile() is None


def test_what_is_open_already_is_above_what_is_called(tracer):
    def loop() -> None:
        began = calls.open_calls(sys._getframe())
        assert began[-1] is loop.__code__
        tracer.start(began)
        leaf(1)

    def outer() -> None:
        loop()
        leaf(2)
        tracer.stop()

    outer()
    nodes, known = tracer.nodes(), tracer.known()
    numbers = {each: i for i, each in enumerate(known)}
    parents = {(nodes[parent][1], function): n for parent, function, n, _ in nodes[1:]}
    assert parents[numbers[loop.__code__], numbers[leaf.__code__]] == 1
    assert parents[numbers[outer.__code__], numbers[leaf.__code__]] == 1
    assert parents[numbers[outer.__code__], numbers[loop.__code__]] == 0, "it was not called while being traced"


def test_both_tracers_see_the_same():
    def work() -> None:
        branch(7)
        climbing(3)
        json.dumps({"a": [1, 2.0, None]})
        sorted([3, 1, 2], key=lambda each: -each)
        "x".join(["a", "b"]).upper()

    seen = []
    for kind in (calls.Tracer, functions_reference.Tracer):
        made = kind(calls.describe)
        content = traced(made, work)
        seen.append({(row["name"], row["kind"], row["calls"], row["calls_from_own"]) for row in content["functions"]})
    assert seen[0] == seen[1]
    assert ("str.upper", "native", 1, 1) in seen[0]


def fake(nodes: list[tuple[int, int, int, int]], *known: Any) -> Any:
    wall = nodes[0][3]
    return SimpleNamespace(nodes=lambda: nodes, known=lambda: list(known), sums=lambda: (wall, 0, 10, 0))


def code(name: str, file: str) -> CodeType:
    return leaf.__code__.replace(co_qualname=name, co_filename=file, co_name=name)


def test_the_cost_of_a_call_is_taken_off_it_and_its_caller():
    known = code("f", "/home/me/train.py"), code("g", "/home/me/train.py"), Native("builtins", "len")
    nodes = [(-1, -1, 0, 10_000), (0, 0, 1, 9_000), (1, 1, 10, 5_000), (2, 2, 20, 400)]
    rows = by_name(calls.collect(fake(nodes, *known), (known[0],), Costs(100.0, 20.0, 1.0)))
    # f: 9000 - 5000, half a call of its own, half of ten of g's.
    assert rows["f"]["self_ns"] == 9_000 - 5_000 - 50 - 500
    assert rows["g"]["self_ns"] == 5_000 - 400 - 500 - 200
    assert rows["len"]["self_ns"] == 400 - 200
    assert rows["f"]["native_ns"] == 200


def test_more_cannot_be_taken_off_a_call_than_it_took():
    known = code("f", "/home/me/train.py"), code("g", "/home/me/train.py")
    nodes = [(-1, -1, 0, 10_000), (0, 0, 1, 9_000), (1, 1, 10, 300)]
    rows = by_name(calls.collect(fake(nodes, *known), (known[0],), Costs(100.0, 0.0, 1.0)))
    assert rows["g"]["self_ns"] == 0
    assert rows["f"]["self_ns"] == 9_000 - 300 - 50 - 500 - 200


def test_wrappers_of_ours_are_taken_out_with_what_they_call_for_themselves():
    ours = os.path.join(HERE, "hooks", "envs.py")
    known = (
        code("train", "/home/me/train.py"), code("stepping.<locals>.step", ours), code("Env.step", "/home/me/env.py"),
        Native("builtins", "isinstance"), Native("torch._C", "TensorBase.item"), code("tally", ours),
    )  # fmt: skip
    nodes = [
        (-1, -1, 0, 1_000), (0, 0, 0, 1_000), (1, 1, 5, 900), (2, 2, 5, 400), (2, 3, 15, 100), (2, 4, 5, 200),
        (3, 3, 7, 50), (2, 5, 5, 80), (7, 4, 5, 60),
    ]  # fmt: skip
    content = calls.collect(fake(nodes, *known), (known[0],), FREE)
    rows = by_name(content)
    assert set(rows) == {"train", "Env.step", "isinstance", "TensorBase.item"}
    assert (rows["isinstance"]["calls"], rows["isinstance"]["self_ns"]) == (7, 50), "only the environment's own"
    assert rows["TensorBase.item"]["calls"] == rows["TensorBase.item"]["calls_from_own"] == 5, "what a wrapper wraps"
    assert content["recorder_ns"] == 900 - 400 - 200
    assert rows["train"]["self_ns"] == 100


def write(folder, name: str, content: dict[str, Any]) -> None:
    (folder / "1-1").mkdir(exist_ok=True)
    (folder / "1-1" / f"{name}.json").write_text(json.dumps(content))


def function(number: int, kind: str, self_ns: int, **changes: Any) -> dict[str, Any]:
    row = {
        "name": f"f{number}", "file": "", "line": 1, "kind": kind, "function": number, "calls": 100, "self_ns": self_ns,
        "python_ns": 0 if kind == "native" else self_ns, "native_ns": self_ns if kind == "native" else 0,
        "calls_from_own": 0,
    }  # fmt: skip
    return row | changes


def functions_of(tmp_path, pace: Pace, slowdown: float = 2.0, **changes: Any) -> Traced:
    rows = [function(0, "own", 6_000, native_ns=2_000), function(1, "native", 2_000), function(2, "library", 4_000)]
    content = {
        "state": "done", "asked": 10, "iterations": 10, "env_steps": 40, "updates": 10, "wall_ns": 20_000,
        "events": 600, "slowdown": slowdown, "functions": rows, "tree": [],
    }  # fmt: skip
    write(tmp_path, "functions", content | changes)
    looks, damage = read_looks(tmp_path)
    assert damage == []
    return build_traced(looks, pace)


def test_python_code_is_scaled_to_the_loop_s_own_pace(tmp_path):
    # 200 ns a step without tracing: 8,000 in the look, of which 2,000 are native; 10,000 were seen in Python.
    found = functions_of(tmp_path, Pace(env_steps=400, updates=100, wall_ns=80_000))
    look = found.functions_look
    assert look is not None
    assert (look.iteration_s, look.untraced_s, look.factor) == pytest.approx((2e-6, 0.8e-6, 2.5))
    assert look.call_cost_s == pytest.approx((20_000 - 8_000) / 300 / 1e9)
    self_s = {row.name: row.self_s for row in found.functions}
    assert self_s == pytest.approx({"f0": 3_600e-9, "f1": 2_000e-9, "f2": 2_400e-9})
    assert sum(row.share for row in found.functions) == pytest.approx(1.0)
    assert found.functions[0].total_s == pytest.approx(5_600e-9)


def test_no_further_than_a_loop_without_calls_is_slowed_down(tmp_path):
    found = functions_of(tmp_path, Pace(env_steps=400, updates=100, wall_ns=30_000), slowdown=1.25)
    assert {row.name: round(row.self_s * 1e9) for row in found.functions} == {"f0": 4800, "f1": 2000, "f2": 3200}


def test_iterations_with_other_work_are_not_compared(tmp_path):
    found = functions_of(tmp_path, Pace(env_steps=400, updates=50, wall_ns=80_000))
    look = found.functions_look
    assert look is not None
    assert (look.untraced_s, look.factor) == (None, None)
    assert {row.name: round(row.self_s * 1e9) for row in found.functions}["f0"] == 4500, "halfway to twice as fast"


def test_optimisable_is_own_code_and_what_it_calls_too_often(tmp_path):
    rows = [
        function(0, "own", 1),
        function(1, "native", 100, calls=200, calls_from_own=150),
        function(2, "native", 100, calls=200, calls_from_own=90),
        function(3, "library", 200 * 30_000, calls=200, calls_from_own=200),
        function(4, "library", 100, calls=10, calls_from_own=10),
    ]
    found = functions_of(tmp_path, Pace(0, 0, 0), slowdown=1.0, functions=rows)
    said = {row.name: row.optimisable for row in found.functions}
    assert said == {"f0": "yes", "f1": "calls", "f2": "no", "f3": "no", "f4": "no"}


def test_the_call_tree_has_the_largest_branch_first(tmp_path):
    def node(parent: int, number: int, python: int) -> dict[str, int]:
        return {"parent": parent, "function": number, "calls": 1, "self_ns": 1, "python_ns": python, "native_ns": 0}

    tree = [node(-1, 0, 10_000), node(0, 2, 2_000), node(0, 0, 7_000), node(2, 1, 4_000)]
    found = functions_of(tmp_path, Pace(0, 0, 0), slowdown=1.0, tree=tree)
    shown = [(row.depth, row.name, row.last) for row in found.function_tree]
    assert shown == [(0, "f0", True), (1, "f0", False), (2, "f1", True), (1, "f2", True)]


def test_calls_in_calls_are_told_apart_by_their_times():
    found = list(nested([(0, -100, "a"), (10, -50, "b"), (20, -10, "a"), (70, -30, "b"), (200, -5, "c")]))
    assert found == [("a", 10, 0), ("b", 40, 50), ("b", 30, 30), ("a", 20, 100), ("c", 5, 5)]


def test_a_pause_has_not_been(tmp_path, monkeypatch):
    with scripted_run(tmp_path, monkeypatch) as run:
        outer = registry.span("update")
        with outer:
            run.during("env.step", 100, "env_steps")
            pause = Pause(run.process)
            with registry.span("env.step"):
                run.spend(30)
                assert pause.possible
                pause.begin()
                run.spend(1_000)
            run.during("env.step", 5_000, "env_steps")
            with registry.span("made.meanwhile"), registry.span("env.step"):
                run.spend(500)
                pause.end()
                pause.end()
            run.during("env.step", 70, "env_steps")
            run.during("made.meanwhile", 8)
        run.second()
    trace = load(tmp_path)
    assert (trace.main.counts["env_steps"], trace.paused_ns) == (2, 6_500)
    assert trace.wall_s * 1e9 == pytest.approx(100 + 30 + 70 + 8)
    nodes = {node.name: node for node in trace.thread.nodes if node.kind == "span"}
    step = nodes["env.step"]
    assert (step.calls, step.total_ns, step.max_ns) == (3, 200, 100)
    assert (nodes["update"].calls, nodes["update"].max_ns) == (1, 208)
    assert (nodes["made.meanwhile"].calls, nodes["made.meanwhile"].total_ns) == (1, 8)
    assert trace.main.windows.start_ns[0] >= START_NS


def test_a_paused_recorder_lets_a_fork_pass(tmp_path):
    options = RecordOptions(functions=1000, warmup=0, hz=0)
    with record(tmp_path / "run", options=options):
        registry.count("env_steps")
        registry.count("env_steps")
        assert sys.getprofile() is not None
        child = os.fork()
        if not child:
            os._exit(0 if sys.getprofile() is None and registry.note is hot_path.note else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert sys.getprofile() is None
        registry.count("env_steps")
    look = load(tmp_path / "run").traced.functions_look
    assert look is not None
    assert (look.state, look.iterations, look.asked) == ("cut", 1, 1000)


def loop(steps: int) -> None:
    for _ in range(steps):
        with registry.span("env.step"):
            branch(3)
        registry.count("env_steps", 4)
        registry.count("updates")


def test_so_many_iterations_are_looked_at_and_kept_out_of_the_counts(tmp_path):
    before = registry.note, environments.note
    with record(tmp_path / "run", options=RecordOptions(functions=20, warmup=30)):
        loop(80)
    assert (registry.note, environments.note) == before
    trace = load(tmp_path / "run")
    look = trace.traced.functions_look
    assert look is not None
    assert (look.state, look.iterations, look.warmup, look.updates) == ("done", 20, 30, 20)
    rows = {row.name: row for row in trace.traced.functions}
    assert (rows["leaf"].calls, rows["leaf"].calls_per_iteration, rows["branch"].calls) == (60, 3.0, 20)
    assert rows["loop"].calls == 0, "it was open all the time"
    assert (trace.main.counts["env_steps"], trace.main.counts["updates"]) == (4 * 60, 60)
    assert trace.paused_ns > 0
    names = {row["name"] for row in _content(tmp_path)["functions"]}
    assert not [name for name in names if name.startswith(("Tracing", "Pause", "Functions"))]


def _content(tmp_path) -> dict[str, Any]:
    return json.loads(next((tmp_path / "run").glob("*/functions.json")).read_text())


def test_a_run_that_ends_in_the_warm_up_says_so(tmp_path, capsys):
    with record(tmp_path / "run", options=RecordOptions(functions=20, ops=5)):
        loop(12)
    said = capsys.readouterr().err
    assert "--functions saw nothing: the run ended after 12 of the 100 iterations of warm-up" in said
    assert "--ops saw nothing" in said
    look = load(tmp_path / "run").traced.functions_look
    assert look is not None
    assert (look.state, look.iterations) == ("none", 0)
    assert "12 of the 100" in look.reason


def test_only_the_thread_that_steps_first_counts(tmp_path):
    with record(tmp_path / "run", options=RecordOptions(functions=5, warmup=10, hz=0)):
        loop(5)
        other = threading.Thread(target=loop, args=(100,))
        other.start()
        other.join()
        assert _content(tmp_path)["state"] == "waiting"
        loop(10)
    assert _content(tmp_path)["state"] == "done"


def test_somebody_else_s_profiler_is_left_alone(tmp_path, capsys):
    def theirs(*event: Any) -> None:
        pass

    with record(tmp_path / "run", options=RecordOptions(functions=5, warmup=2, hz=0)):
        sys.setprofile(theirs)
        try:
            loop(20)
            assert sys.getprofile() is theirs
        finally:
            sys.setprofile(None)
    assert "another profiler" in capsys.readouterr().err
    assert load(tmp_path / "run").main.counts["env_steps"] == 80, "the recording goes on"


@pytest.mark.parametrize("name", ["functions", "ops", "modules_every", "warmup"])
def test_wrong_options_are_refused(name):
    with pytest.raises(HotloopError, match=f"{name} -1"):
        RecordOptions(**{name: -1})
