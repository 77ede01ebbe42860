"""Rules of the machine (processes, cores, device, compiler) and of validity: where they fire, and where not."""

from __future__ import annotations

import pytest
from tests.traces import causes, frame, gap, make_process, make_thread, make_trace, place, seen

from hotloop.phases import Phase

CALL = frame("collect", "ppo.py", 51, "env.step(actions)")


def rules(trace):
    return [finding.rule for finding in causes(trace)]


def worker(pid, step_us, fastest_us, steps=1000, phase=Phase.ENV):
    """A process that makes one environment's step at a time and waits for 10 s in all."""
    busy_s = steps * step_us / 1e6
    fields = {"p50_ns": round(step_us * 1e3), "min_ns": round(fastest_us * 1e3)}
    tree = [
        place("Connection.recv", Phase.WAIT, 10 - busy_s, steps),
        place("CartPoleEnv.step", phase, busy_s, steps, **fields),
    ]
    thread = make_thread(tree, cpu_s=busy_s)
    return make_process([thread], {"env_steps": steps, "cpu_ns": round(busy_s * 1e9)}, pid=pid, main=False)


def carried(step_us=50.0, fastest_us=20.0, wait_s=5.0, workers=8, act_s=0.0):
    """1000 vector steps of 8 environments in 10 s; `wait_s` in the vector environment, the rest in learning."""
    step = place("AsyncVectorEnv.step", Phase.ENV, 0.0, 1000, [place("Connection.recv", Phase.WAIT, wait_s, 8000)])
    act = [place("Policy", Phase.ACT, act_s, 1000, min_ns=600_000)] if act_s else []
    return make_trace(
        [step, *act, place("backward", Phase.BACKWARD, 10 - wait_s - act_s, 100)],
        [seen("AsyncVectorEnv.step/Connection.recv", [CALL], wait_s, cpu=0.1)],
        {"env_steps": 8000, "vector_steps": 1000, "updates": 100},
        others=[worker(200 + i, step_us, fastest_us) for i in range(workers)],
    )


def test_processes_for_a_light_environment_are_found_and_priced_as_steps_in_a_row():
    (finding,) = causes(carried())
    assert (finding.rule, finding.file, finding.line) == ("vector_overhead", "ppo.py", 51)
    assert finding.share == pytest.approx(0.5)
    # 20 µs at best and 8 µs in the same process, of the 625 µs that each takes now.
    assert finding.gain == pytest.approx(1 / (1 - 0.5 * (1 - 28 / 625)))
    assert "50 µs in its process, and 625 µs" in finding.evidence[1]
    assert "8 processes for 8 environments" in finding.evidence[2]


def test_acting_is_expected_to_be_as_fast_as_its_fastest_calls_once_nothing_sleeps():
    (finding,) = causes(carried(act_s=1.0))
    assert finding.share == pytest.approx(0.6)
    assert finding.gain == pytest.approx(1 / (1 - 0.5 * (1 - 28 / 625) - 0.1 * (1 - 0.6)))


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(carried(step_us=400.0, fastest_us=300.0), id="the environments take most of it"),
        pytest.param(carried(wait_s=0.2), id="the vector environment takes little"),
        pytest.param(carried(workers=0), id="no processes"),
    ],
)
def test_processes_that_pay_are_left_alone(trace):
    assert rules(trace) == []


def copied(copy_s, env_s, steps=1000):
    """Vector steps of 8 environments in one process, with copying in the vector environment."""
    stack = [frame("concatenate", "/site-packages/gymnasium/vector/utils.py", 128, "", own=False), CALL]
    inner = place("PongEnv.step", Phase.ENV, env_s, 8 * steps)
    return make_trace(
        [
            place("SyncVectorEnv.step", Phase.ENV, copy_s, steps, [inner]),
            place("backward", Phase.BACKWARD, 10 - copy_s - env_s, 100),
        ],
        [seen("SyncVectorEnv.step", stack, copy_s)],
        {"env_steps": 8 * steps, "vector_steps": steps, "updates": 100, "cpu_ns": 10**10},
    )


def test_copying_that_outweighs_the_environments_is_found():
    (finding,) = causes(copied(4.0, 1.0))
    assert (finding.rule, finding.line) == ("vector_overhead", 51)
    assert finding.gain == pytest.approx(1 / (1 - 0.4 * 0.6))
    assert "copy=False" in finding.advice
    assert rules(copied(1.0, 2.0)) == []
    assert rules(copied(4.0, 1.0, steps=30_000)) == []


def in_a_row(step_ms=2.0, num_envs=4, cores=4, cpu_s=10.0, inner=True, others=()):
    """10 s of which 8 s go into environments stepped one after the other by a vector environment."""
    steps = round(8.0 / (step_ms / 1e3))
    vector = steps // num_envs
    held = [place("FlowEnv.step", Phase.ENV, 8.0, steps)] if inner else []
    line = frame("step", "flow.py", 33, "f[1:-1] = 0.25 * (f[:-2] + f[2:])")
    call = frame("main", "train.py", 32, "model.learn(10**9)")
    path = "DummyVecEnv.step/FlowEnv.step" if inner else "DummyVecEnv.step"
    return make_trace(
        [
            place("DummyVecEnv.step", Phase.ENV, 0.0 if inner else 8.0, vector, held),
            place("backward", Phase.BACKWARD, 2.0, 100),
        ],
        [seen(path, [line, call], 8.0)],
        {"env_steps": steps, "vector_steps": vector, "updates": 100, "cpu_ns": round(cpu_s * 1e9)},
        machine={"cores": cores},
        others=others,
    )


def test_heavy_environments_in_a_row_are_found_on_a_machine_with_idle_cores():
    (finding,) = causes(in_a_row())
    assert (finding.rule, finding.file, finding.line) == ("heavy_sync_env", "train.py", 32)
    # Four processes, uneven by a tenth, and 60 µs of messages for each step of 2 ms.
    assert finding.gain == pytest.approx(1 / (1 - 0.8 * (1 - (1.1 / 4 + 0.03))))
    assert "3.0 of 4 cores are idle; the gain is for 4 processes" in finding.evidence[2]


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(in_a_row(step_ms=0.1), id="light environments"),
        pytest.param(in_a_row(num_envs=1), id="one environment"),
        pytest.param(in_a_row(cores=1), id="one core"),
        pytest.param(in_a_row(cpu_s=36.0), id="the cores are busy"),
        pytest.param(in_a_row(inner=False), id="written for arrays"),
    ],
)
def test_environments_that_gain_nothing_by_processes_are_left_alone(trace):
    assert rules(trace) == []


def computed(threads=1, flops=5 * 10**8, cpu_s=10.0, cores=4, calls=800):
    """8 s of 10 s in backward passes. One core of the machine does 60 GFLOP/s at most."""
    backward_s = 8.0
    trace = make_trace(
        [
            place("backward", Phase.BACKWARD, backward_s, calls, counts={"flops": calls * flops}),
            place("Env.step", Phase.ENV, 10 - backward_s, 1000),
        ],
        [seen("backward", [frame("update", "dqn.py", 90, "loss.backward()")], backward_s)],
        {"env_steps": 1000, "updates": calls, "flops": calls * flops, "cpu_ns": round(cpu_s * 1e9)},
        machine={"cores": cores},
        torch_threads=threads,
    )
    trace.manifest["torch"]["set_at"] = ["dqn.py", 10]
    return trace


def test_a_large_network_on_one_thread_beside_idle_cores_is_found():
    (finding,) = causes(computed())
    assert (finding.rule, finding.file, finding.line) == ("idle_cores", "dqn.py", 10)
    assert finding.gain == pytest.approx(1 / (1 - 0.8 * (1 - (0.1 + 0.9 / 4))))
    assert "torch.set_num_threads(4)" in finding.advice


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(computed(threads=4, cpu_s=38.0), id="all cores at work"),
        pytest.param(computed(cores=1), id="one core"),
        pytest.param(computed(threads=2, cores=2, cpu_s=8.0), id="as many threads as cores, waiting now and then"),
        pytest.param(computed(cpu_s=38.0), id="others use the cores"),
        pytest.param(computed(flops=10**8, calls=4000), id="a small network"),
        pytest.param(computed(calls=150), id="far from the peak: not bound by arithmetic"),
    ],
)
def test_one_thread_is_right_for_small_networks_and_busy_machines(trace):
    assert rules(trace) == []


def on_device(device_s, learn_s=6.0, gpu="A100"):
    """10 s with 1000 updates on a device that computes for `device_s` of them."""
    fields = {"device_ns": round(device_s * 1e9)}
    return make_trace(
        [
            place("backward", Phase.BACKWARD, learn_s, 1000, counts={"flops": 10**9}, **fields),
            place("Env.step", Phase.ENV, 10 - learn_s, 1000),
        ],
        [seen("backward", [frame("update", "dqn.py", 90, "loss.backward()")], learn_s)],
        {"env_steps": 1000, "updates": 1000, "flops": 10**9, "cpu_ns": 10**10},
        machine={"gpu": gpu},
    )


def test_a_device_that_idles_while_it_is_fed_is_found():
    (finding,) = causes(on_device(0.6))
    assert (finding.rule, finding.line) == ("small_device", 90)
    # Half of the calls' time stays, and a gigaFLOP at a fifth of 60 GFLOP/s.
    assert finding.gain == pytest.approx(1 / (1 - 0.6 * (0.5 - (1 / 12) / 6)))
    assert "10 % of the 6 s spent on it" in finding.evidence[1]


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(on_device(3.0), id="the device computes half of the time"),
        pytest.param(on_device(0.1, learn_s=1.0), id="little time goes to the device"),
        pytest.param(on_device(0.6, gpu=None), id="no device"),
        pytest.param(on_device(0.0), id="device time unknown"),
    ],
)
def test_a_device_that_is_used_is_left_alone(trace):
    assert rules(trace) == []


def acting(counter="training_mode.dropout", noisy=1000, learner_noisy=1000):
    """1000 actions and 1000 updates; how many of their forward passes were in training mode."""
    return make_trace(
        [
            place("QNetwork", Phase.ACT, 2.0, 1000, counts={counter: noisy} if noisy else {}),
            place("Env.step", Phase.ENV, 3.0, 1000),
            place("QNetwork", Phase.FORWARD, 2.0, 1000, counts={counter: learner_noisy}),
            place("backward", Phase.BACKWARD, 3.0, 1000),
        ],
        [seen("QNetwork", [frame("act", "dqn.py", 57, "greedy = self.q(states).argmax(1)")], 2.0)],
        {"env_steps": 1000, "updates": 1000, counter: noisy + learner_noisy, "cpu_ns": 10**10},
    )


@pytest.mark.parametrize(("counter", "name"), [("dropout", "dropout"), ("batchnorm", "BatchNorm")])
def test_acting_in_training_mode_is_told_and_costs_nothing(counter, name):
    (finding,) = causes(acting(f"training_mode.{counter}"))
    assert (finding.rule, finding.line, finding.gain) == ("training_mode_acting", 57, 1.0)
    assert name in finding.title
    assert "100 % of the forward passes" in finding.evidence[1]


def test_training_mode_while_learning_is_right():
    assert rules(acting(noisy=0)) == []
    assert rules(acting(noisy=100)) == []


def compiled(again, compilations, seconds=4.0):
    """10 s with `seconds` inside the compiler."""
    stack = [
        frame("_compile", "/site-packages/torch/_dynamo/convert_frame.py", 1200, "", own=False),
        frame("main", "train.py", 87, "loss = compiled_loss(states)"),
    ]
    return make_trace(
        [
            gap("(Env.step → Adam.zero_grad)", Phase.FORWARD, seconds),
            place("Env.step", Phase.ENV, 10 - seconds, 1000),
        ],
        [seen("(Env.step → Adam.zero_grad)", stack, seconds)],
        {
            "env_steps": 1000, "updates": 100, "cpu_ns": 10**10,
            "compilations": compilations, "recompilations": again,
        },
    )  # fmt: skip


def test_compiling_again_is_found_and_the_first_compilations_are_not_counted():
    (finding,) = causes(compiled(45, 50))
    assert (finding.rule, finding.file, finding.line) == ("recompilations", "train.py", 87)
    assert finding.gain == pytest.approx(1 / (1 - 0.4 * 0.9 - 50 * 300e-6 / 10))
    assert "50 compilations, 45 of them" in finding.evidence[1]


def test_first_compilations_are_ordinary():
    assert rules(compiled(0, 4)) == []
    assert rules(compiled(2, 4)) == []
    assert rules(compiled(45, 50, seconds=0.01)) == []


def learned(bad):
    return make_trace(
        [
            place("backward", Phase.BACKWARD, 4.0, 100),
            place("Env.step", Phase.ENV, 6.0, 1000),
        ],
        [seen("backward", [frame("main", "train.py", 63, "loss.backward()")], 4.0)],
        {"env_steps": 1000, "updates": 100, "non_finite_losses": bad, "cpu_ns": 10**10},
    )


def test_losses_that_are_not_finite_are_told():
    (finding,) = causes(learned(57))
    assert (finding.rule, finding.line, finding.gain) == ("non_finite_loss", 63, 1.0)
    assert "57 of 100 backward passes" in finding.evidence[1]
    assert rules(learned(0)) == []


def wrapped(name, phase, inner, inner_s=3.0):
    """A span of 8 s that contains another of `inner_s`, called from one line."""
    return make_trace(
        [
            place(name, phase, 8.0 - inner_s, 100, [place("inner", inner, inner_s, 100)]),
            place("Env.step", Phase.ENV, 2.0, 100),
        ],
        [seen(name, [frame("main", "train.py", 110, "trainer.step(EPOCHS)")], 8.0 - inner_s)],
        {"env_steps": 100, "updates": 100, "cpu_ns": 10**10},
    )


def test_an_environment_that_contains_the_updates_is_told():
    (finding,) = causes(wrapped("Trainer.step", Phase.ENV, Phase.BACKWARD))
    assert (finding.rule, finding.line, finding.gain) == ("parts_do_not_sum", 110, 1.0)
    assert "Trainer.step (env) takes 80 % of the loop, of which 30 % is inner" in finding.evidence[1]


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(wrapped("Env.step", Phase.ENV, Phase.FORWARD), id="an opponent's network in the environment"),
        pytest.param(wrapped("predict", Phase.ACT, Phase.FORWARD), id="acting is a forward pass"),
        pytest.param(wrapped("Eval.on_step", Phase.LOG, Phase.ENV), id="a callback may evaluate"),
        pytest.param(wrapped("learn", Phase.OTHER, Phase.BACKWARD), id="a container"),
        pytest.param(wrapped("Trainer.step", Phase.ENV, Phase.BACKWARD, 0.5), id="hardly anything"),
    ],
)
def test_ordinary_nesting_is_fine(trace):
    assert rules(trace) == []
