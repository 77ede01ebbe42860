"""Rules on environments, observations and updates: where they fire, and where they must not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.traces import causes, frame, gap, make_process, make_thread, make_trace, place, seen

from hotloop.phases import Phase


def rules(trace):
    return [finding.rule for finding in causes(trace)]


def learning(num_envs, updates_a_step, sampler="Replay.sample", learn_s=9.0):
    """100 vector steps in 10 s, `learn_s` of them in updates."""
    updates = 100 * updates_a_step
    line = frame("train", "dqn.py", 66, "agent.update(*replay.sample(BATCH))")
    return make_trace(
        [
            place(sampler, Phase.SAMPLE, 0.1 * learn_s, updates),
            place("backward", Phase.BACKWARD, 0.9 * learn_s, updates),
            place("Env.step", Phase.ENV, 10 - learn_s, 100),
        ],
        [seen("backward", [line], 0.9 * learn_s)],
        {"env_steps": 100 * num_envs, "vector_steps": 100, "updates": updates},
    )


def test_64_updates_a_vector_step_are_found_and_priced_for_4():
    (finding,) = causes(learning(256, 64))
    assert (finding.rule, finding.line) == ("many_updates", 66)
    assert finding.gain == pytest.approx(1 / (0.1 + 0.9 * 4 / 64))
    assert "UPDATES_PER_STEP = 4" in finding.advice


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(learning(1, 1), id="one update a step of a single environment"),
        pytest.param(learning(256, 4), id="the target ratio"),
        pytest.param(learning(256, 64, sampler="RolloutBuffer.get"), id="epochs over a rollout"),
        pytest.param(learning(256, 64, learn_s=3.0), id="learning is not the bottleneck"),
        pytest.param(learning(8, 8), id="few environments"),
    ],
)
def test_ordinary_ratios_are_fine(trace):
    assert rules(trace) == []


def stepping(lines, num_envs=256, self_s=8.0, vector_steps=100, phase=Phase.ENV):
    """A loop of 10 s with `self_s` in the environment's own lines, given as [(function, text), ...]."""
    samples = [
        seen("Env.step", [frame(function, "snake.py", 10 + i, text), frame("step", "snake.py", 5, "f()")], each)
        for each in [self_s / len(lines)]
        for i, (function, text) in enumerate(lines)
    ]
    return make_trace(
        [place("Env.step", phase, self_s, vector_steps), place("backward", Phase.BACKWARD, 10 - self_s, 10)],
        samples,
        {"env_steps": num_envs * vector_steps, "vector_steps": vector_steps, "updates": 10},
    )


SEARCH = [
    ("flood", "while queue:"),
    ("flood", "r, c = queue.popleft()"),
    ("flood", "if 0 <= r < SIZE and cell not in seen:"),
    ("flood", "seen.add(cell)"),
]


@pytest.mark.parametrize("num_envs", [1, 256])
def test_a_search_in_python_is_found(num_envs):
    (finding,) = causes(stepping(SEARCH, num_envs))
    assert finding.rule == "python_loop"
    assert finding.gain == pytest.approx(1 / (1 - 0.8 * 0.97))


def test_a_loop_over_many_environments_is_found_and_over_one_is_not():
    lines = [("features", "for i in range(self.num_envs):"), ("features", "x = self.head[i]")]
    assert rules(stepping(lines, 256)) == ["python_loop"]
    assert rules(stepping(lines, 1)) == []


def test_vectorised_code_is_not_a_python_loop():
    lines = [
        ("features", "self.life[self.rows, cell[:, 0], cell[:, 1]] = self.length"),
        ("features", "away = self.food - self.head"),
        ("features", "return np.stack(danger + food, 1)"),
    ]
    assert rules(stepping(lines, 256)) == []


def beside(name, text):
    """A loop of 10 s with 5 s on a line between two spans."""
    line = frame("record", "dqn.py", 78, text)
    return make_trace(
        [
            place("Env.step", Phase.ENV, 1.0, 1000),
            gap(name, Phase.ACT, 5.0),
            place("backward", Phase.BACKWARD, 4.0, 1000),
        ],
        [seen(name, [line], 5.0)],
        {"env_steps": 8000, "vector_steps": 1000, "updates": 1000},
    )


def test_loops_count_beside_the_environment_and_not_after_an_update():
    text = "for i in range(num_envs):"
    assert rules(beside("(Env.step → Replay.push)", text)) == ["python_loop"]
    assert rules(beside("(Adam.step → QNetwork)", text)) == []


def test_a_comprehension_over_parameters_is_no_loop_over_environments():
    text = "grads = torch._foreach_norm([p.grad for p in self.q.parameters()])"
    assert rules(beside("(Env.step → Replay.push)", text)) == []


def test_a_cheap_loop_is_not_worth_a_kernel():
    assert rules(stepping(SEARCH, 256, self_s=0.5, vector_steps=100_000)) == []


def drawing(render_s, frames, function="_draw_board", file="/site-packages/PIL/Image.py"):
    """A loop of 10 s with `render_s` in a drawing library below the environment's step."""
    stack = [
        frame("resize", file, 2300, "self.im.resize(size)", own=False),
        frame(function, "board.py", 88, "picture = self.make(128)"),
    ]
    return make_trace(
        [
            place("Env.step", Phase.ENV, render_s + 0.5, frames),
            place("backward", Phase.BACKWARD, 9.5 - render_s, 100),
        ],
        [
            seen("Env.step", stack, render_s),
            seen("Env.step", [frame("slide", "board.py", 9, "x += dx")], 0.5),
        ],
        {"env_steps": frames, "vector_steps": frames, "updates": 100},
    )


def test_drawing_in_every_step_is_found():
    (finding,) = causes(drawing(8.0, frames=2000))
    assert (finding.rule, finding.file, finding.line) == ("render_bound", "board.py", 88)
    assert finding.gain == pytest.approx(1 / (1 - 0.8 + 2000 * 100e-6 / 10 - 0.3 * 0.2))


def test_direct_drawing_is_fine():
    assert rules(drawing(3.0, frames=30_000, file="board.py")) == []


def observing(texts, per_step_us):
    """A loop of 10 s and 10,000 steps, with time on making observations."""
    self_s = per_step_us * 1e-6 * 10_000
    samples = [
        seen("Wrapper.step", [frame("observation", "wrap.py", 30 + i, text)], self_s / len(texts))
        for i, text in enumerate(texts)
    ]
    return make_trace(
        [
            place("Wrapper.step", Phase.ENV, self_s, 10_000),
            place("backward", Phase.BACKWARD, 10 - self_s, 100),
        ],
        samples,
        {"env_steps": 10_000, "vector_steps": 10_000, "updates": 100},
    )


CHURN = [
    "frames.append(torch.as_tensor(frame, dtype=torch.float32).permute(2, 0, 1))",
    "return torch.stack(frames)",
    "frames = frames / 255.0",
    "grey = frames.sum(dim=1)",
]


def test_frames_stacked_anew_are_found():
    (finding,) = causes(observing(CHURN, per_step_us=800))
    assert (finding.rule, finding.file) == ("frame_stack_churn", "wrap.py")
    assert finding.share == pytest.approx(0.8)
    assert finding.gain == pytest.approx(1 / (1 - 0.8 * 0.82))
    assert str(finding).startswith(f"{finding.title}\n  wrap.py:{finding.line}, expect 2.91×")


def test_a_line_that_steps_or_learns_besides_is_not_called_churn():
    together = ["obs, r, done, _, _ = env.step(torch.as_tensor(x).float().argmax().item())", "loss.float().backward()"]
    assert rules(observing(together, per_step_us=800)) == []


def test_small_observations_may_be_converted():
    assert rules(observing(CHURN, per_step_us=60)) == []


def reading(texts, inner="is_loaded", file="game.py"):
    """A loop of 10 s, 6 s of it inside a getter that is read on the given lines."""
    samples = [
        seen(
            "Env.step",
            [
                frame(inner, "game.py", 5, "return bool((self.tiles == 3).any())"),
                frame("critic", file, 50 + i, text),
            ],
            6.0 / len(texts),
        )
        for i, text in enumerate(texts)
    ]
    return make_trace(
        [place("Env.step", Phase.ENV, 6.0, 1000), place("backward", Phase.BACKWARD, 4.0, 100)],
        samples,
        {"env_steps": 1000, "vector_steps": 1000, "updates": 100},
    )


def test_a_property_read_from_many_places_is_found():
    texts = ["if not new.room.is_loaded:", "x = float(game.room.is_loaded)", "return a.is_loaded and b"]
    (finding,) = causes(reading(texts))
    assert (finding.rule, finding.file, finding.line) == ("recomputed_property", "game.py", 5)
    # One computation is left for three reads.
    assert finding.gain == pytest.approx(1 / (1 - 0.6 * 2 / 3))
    assert "is_loaded from 3 places" in finding.evidence[2]


def test_a_method_without_arguments_counts_from_three_places():
    calls = ["a = env.is_loaded()", "b = self.is_loaded()", "c = game.is_loaded()"]
    assert rules(reading(calls)) == ["recomputed_property"]
    assert rules(reading(calls[:2])) == []


def test_functions_of_arguments_and_cached_values_are_fine():
    assert rules(reading(["a.is_loaded(x)", "b.is_loaded(y)", "c.is_loaded(z)"])) == []
    cached = ["val = self.func(instance)"] * 3
    assert rules(reading(cached, file="/usr/lib/functools.py")) == []


def fetching(per_update, line_s):
    """A loop of 10 s and 1000 updates, with `line_s` on a line that fetches values."""
    line = frame("update", "dqn.py", 77, "norms.append(p.grad.norm().item())")
    counts = {"host_syncs.item": 1000 * per_update}
    return make_trace(
        [
            place("update", Phase.OPTIMISE, line_s, 1000, counts=counts),
            place("backward", Phase.BACKWARD, 10 - line_s, 1000),
        ],
        [seen("update", [line], line_s)],
        {"env_steps": 1000, "vector_steps": 1000, "updates": 1000} | counts,
    )


def test_many_values_fetched_an_update_are_found():
    (finding,) = causes(fetching(300, 5.0))
    assert (finding.rule, finding.line) == ("host_sync", 77)
    assert "300 values fetched an update" in finding.evidence[1]
    assert finding.gain == pytest.approx(1 / (1 - 0.5 * 0.9))


def test_an_action_fetched_each_step_is_fine():
    line = frame("act", "ppo.py", 39, "action = int(torch.multinomial(probs, 1))")
    # Eight values a step, seven of them fetched inside the environment.
    fetched = {"host_syncs.item": 8 * 2560}
    name = "(Policy → Env.step)"
    trace = make_trace(
        [
            gap(name, Phase.ACT, 4.0, counts=fetched),
            place("Env.step", Phase.ENV, 1.0, 2560),
            place("backward", Phase.BACKWARD, 5.0, 80),
        ],
        [seen(name, [line], 4.0)],
        {"env_steps": 2560, "vector_steps": 2560, "updates": 80} | fetched,
    )
    assert rules(trace) == []


def test_counts_of_untimed_blocks_are_shared_out():
    # Half of the work was counted while nothing was timed.
    trace = computing(flops=255_000_000_000, seconds=0.01)
    main = replace(trace.main, counts=dict(trace.main.counts) | {"flops": 510_000_000_000})
    (finding,) = causes(replace(trace, processes=(main,)))
    assert "5.1 GFLOP in 100 µs" in finding.evidence[1]


def test_a_few_metrics_an_update_are_fine():
    assert rules(fetching(5, 5.0)) == []


def computing(flops, seconds=1.0, calls=100, gpu=None):
    tree = [
        place("Critic", Phase.FORWARD, seconds, calls, counts={"flops": flops}),
        place("Env.step", Phase.ENV, 9.0, 100),
    ]
    return make_trace(tree, (), {"env_steps": 100, "flops": flops}, {"peak_flops": 1e11, "gpu": gpu})


def test_more_arithmetic_than_the_machine_has_is_an_impossible_timing():
    # 100 calls of 5.1 GFLOP in 0.1 ms each.
    (finding,) = causes(computing(flops=510_000_000_000, seconds=0.01))
    assert (finding.rule, finding.span, finding.gain) == ("impossible_timing", "Critic", 1.0)
    assert "5.1 GFLOP in 100 µs would be 51 TFLOP/s" in finding.evidence[1]


def test_a_possible_timing_and_one_of_a_gpu_are_left_alone():
    assert "impossible_timing" not in rules(computing(flops=200_000_000_000))
    assert "impossible_timing" not in rules(computing(flops=510_000_000_000, seconds=0.01, gpu="some GPU"))


def crowded(torch_threads, workers, cores=4, waited_s=0.0, cpu=0.9, starved_s=0.0):
    others = [
        make_process([make_thread([place("Env.step", Phase.ENV, 10.0, 10)])], pid=200 + i, main=False)
        for i in range(workers)
    ]
    line = frame("update", "dqn.py", 3, "loss.backward()")
    return make_trace(
        [
            place("backward", Phase.BACKWARD, 8.0, 1000, min_ns=2_000_000, p50_ns=7_000_000),
            place("Env.step", Phase.ENV, 2.0, 1000),
            place("Connection.recv", Phase.WAIT, waited_s, 1000),
        ],
        [seen("backward", [line], 8.0, cpu=cpu)],
        {"env_steps": 1000, "vector_steps": 1000, "updates": 1000, "starved_ns": round(starved_s * 1e9)},
        {"cores": cores},
        others=others,
        torch_threads=torch_threads,
    )


def test_more_threads_than_cores_are_found():
    (finding,) = causes(crowded(torch_threads=8, workers=2))
    assert finding.rule == "oversubscription"
    assert "torch.set_num_threads(1)" in finding.advice
    # A call takes 8 ms, and 2 ms at best.
    assert finding.gain == pytest.approx(1 / (1 - 0.8 * (1 - 2 / 8)))


def test_threads_and_workers_together_are_found():
    assert rules(crowded(torch_threads=4, workers=3)) == ["oversubscription"]


def test_workers_that_are_waited_for_are_in_nobodys_way():
    assert rules(crowded(torch_threads=4, workers=3, waited_s=8.0)) == []


def test_threads_that_wait_for_each_other_are_found_although_nobody_of_this_run_is_in_their_way():
    (finding,) = causes(crowded(torch_threads=4, workers=0, cpu=0.4))
    assert (finding.rule, finding.title) == (
        "oversubscription",
        "Torch's 4 threads wait for each other: something else keeps the 4 cores busy.",
    )
    assert rules(crowded(torch_threads=1, workers=0, cpu=0.4)) == []


@pytest.mark.parametrize(
    ("workers", "starved_s", "told"),
    [
        (0, 0.0, "torch uses 4 threads, there are 4 cores"),
        (0, 2.0, "torch uses 4 threads, there are 4 cores, the main thread waits for one in 20 % of the time"),
        (3, 0.0, "torch uses 4 threads, there are 4 cores, other processes of the run keep 3.0 of them busy"),
    ],
)
def test_who_is_in_the_way_of_threads_is_told_if_it_is_known(workers, starved_s, told):
    (finding,) = causes(crowded(torch_threads=4, workers=workers, cpu=0.4, starved_s=starved_s))
    assert finding.evidence[1] == told


@pytest.mark.parametrize("trace", [crowded(1, 4), crowded(2, 2), crowded(4, 1), crowded(4, 0)])
def test_threads_that_fit_are_fine(trace):
    assert rules(trace) == []


def test_drawing_without_any_environment_is_no_finding():
    """A script that only makes plots ended `explain` with a division by zero."""
    figure = frame("savefig", "/site-packages/matplotlib/figure.py", 3000, "self.canvas.print_figure()", own=False)
    stack = [figure, frame("<module>", "plots.py", 6, "f.savefig(io.BytesIO())")]
    assert "render_bound" not in rules(make_trace([place("main", Phase.OTHER, 4.0)], [seen("main", stack, 4.0)]))


def test_drawing_beside_the_environment_is_a_part_of_its_step():
    stack = [frame("draw", "wrapper.py", 88, "picture = cv2.resize(big, (84, 84))")]
    trace = make_trace(
        [place("Env.step", Phase.ENV, 1.0, 2000), gap("(Env.step → QNetwork)", Phase.OTHER, 8.0)],
        [seen("(Env.step → QNetwork)", stack, 8.0)],
        {"env_steps": 2000, "vector_steps": 2000},
    )
    (finding,) = (each for each in causes(trace) if each.rule == "render_bound")
    assert "4 ms of the 4.5 ms of an environment step (89 %)" in finding.evidence[1]


NO_TIME = {
    "a batch": ("ReplayBuffer.sample", Phase.SAMPLE, "states = np.array([each.state for each in batch])"),
    "a deque": ("ReplayBuffer.sample", Phase.SAMPLE, "batch = random.sample(self.memory, 64)"),
    "a getter": ("Env.step", Phase.ENV, "return self.head"),
    "a picture": ("Env.render", Phase.RENDER, "frame = cv2.resize(frame, (84, 84))"),
    "a network in training mode": ("QNetwork", Phase.ACT, "action = policy(obs)"),
    "a store": ("Replay.push", Phase.STORE, "self.memory.append(item.item())"),
}


@pytest.mark.parametrize("name", NO_TIME)
def test_places_that_took_no_time_divide_nothing(name):
    """A clock may stand still in a span, and the overhead that is taken off may be all of its time."""
    span, phase, text = NO_TIME[name]
    lines = [frame(function, "own.py", 10 + i, text) for i, function in enumerate(("head", "body", "tail"))]
    library = frame("Random.sample", "/lib/python3.11/random.py", 456, "", own=False)
    counts = {"replay_bytes": 1 << 30, "replay_adds_bytes": 1 << 33, "flops": 10**12, "acting_dropout": 500}
    for calls in (0, 100):
        trace = make_trace(
            [
                place(span, phase, 0.0, calls, counts=counts, min_ns=0, p50_ns=0),
                place("backward", Phase.BACKWARD, 5.0, 100),
            ],
            [seen(span, [library, *lines], 1.0), seen(span, lines, 1.0), seen(span, lines[1:], 1.0)],
            {"env_steps": 25_600, "vector_steps": 100, "updates": 100, **counts},
        )
        causes(trace)
