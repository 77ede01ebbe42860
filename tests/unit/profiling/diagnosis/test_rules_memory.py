"""Rules on data that grows, on logging, saving, collecting and on small objects: where they fire, where not."""

from __future__ import annotations

import numpy as np
import pytest
from tests.traces import causes, frame, gap, make_trace, place, seen

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.rules.data import growing_array, growing_sample
from hotloop.profiling.diagnosis.rules.environment import object_churn
from hotloop.profiling.diagnosis.rules.machine import checkpoint_stall, gc_pauses, logging_stall, memory_growth
from hotloop.profiling.diagnosis.time_slices import study

MB = 1 << 20


def rules(trace):
    return [finding.rule for finding in causes(trace)]


def drawing(stack, self_s=4.0, calls=2000, windows=None):
    """A loop of 10 s that draws a batch 2000 times, `self_s` of it with one stack."""
    return make_trace(
        [
            place("Replay.sample", Phase.SAMPLE, self_s, calls),
            place("backward", Phase.BACKWARD, 10 - self_s, calls),
        ],
        [seen("Replay.sample", stack, self_s)],
        {"env_steps": 20_000, "vector_steps": 2000, "updates": calls},
        windows=windows,
    )


@pytest.mark.parametrize(
    ("text", "left_us"),
    [
        ("i = np.random.choice(self.size, batch_size, replace=False)", 10),
        ("i = torch.randperm(self.size)[:batch_size]", 10),
        ("i = np.random.choice(self.size, k, p=self.priorities / self.priorities.sum())", 200),
        ("i = torch.multinomial(self.priorities, k)", 200),
        ("ends = np.flatnonzero(self.dones[: self.size])", 20),
        ("order = sorted(self.priorities)", 20),
        ("buffers = {key: value.copy() for key, value in self.buffers.items()}", 20),
    ],
)
def test_a_draw_that_looks_at_the_whole_buffer_is_found(text, left_us):
    (finding,) = causes(drawing([frame("sample", "replay.py", 9, text)]))
    assert (finding.rule, finding.file, finding.line) == ("growing_sample", "replay.py", 9)
    assert finding.share == pytest.approx(0.4)
    # 2 ms a batch become 10, 200 or 20 µs.
    assert finding.gain == pytest.approx(10 / (6 - 2000 * 300e-6 + 2000 * left_us * 1e-6))
    assert "2 ms a batch" in finding.evidence[1]


@pytest.mark.parametrize(
    "text",
    [
        "i = np.random.randint(0, self.size, batch_size)",
        "i = rng.integers(self.size, size=batch_size)",
        "states = torch.from_numpy(self.states[i])",
        "for i in torch.randperm(len(advantages)).split(MINIBATCH):",
    ],
)
def test_a_draw_of_a_batch_alone_is_not_a_growing_sample(text):
    assert rules(drawing([frame("sample", "replay.py", 9, text)])) == []


def test_a_sum_over_a_batch_is_cheap_and_is_not_a_growing_sample():
    line = frame("sample", "replay.py", 9, "returns = (rewards * discounts).sum(1)")
    assert list(growing_sample.find(study(drawing([line], self_s=0.1)))) == []  # 50 µs a batch
    assert list(growing_sample.find(study(drawing([line], self_s=0.2)))) != []


def test_growth_is_told_where_it_is_seen():
    line = frame("sample", "replay.py", 9, "ends = np.flatnonzero(self.dones)")
    trace = drawing([line], windows={"updates": [300, 300, 300, 200, 200, 200, 200, 100, 100, 100]})
    (finding,) = causes(trace)
    assert "a batch takes 3.00 times as long at the end" in " ".join(finding.evidence)


def deque_sampling(taking_s, drawing_s):
    line = frame("sample", "replay.py", 9, "batch = random.sample(self.memory, batch_size)")
    inner = frame("Random.sample", "/lib/random.py", 456, own=False)
    draw = frame("Random._randbelow_with_getrandbits", "/lib/random.py", 239, own=False)
    rest = 10 - taking_s - drawing_s
    return make_trace(
        [
            place("Replay.sample", Phase.SAMPLE, taking_s + drawing_s, 1000),
            place("backward", Phase.BACKWARD, rest, 1000),
        ],
        [
            seen("Replay.sample", [inner, line], taking_s),
            seen("Replay.sample", [draw, inner, line], drawing_s),
        ],
        {"env_steps": 1000, "updates": 1000},
    )


def test_random_sample_of_a_deque_is_found_by_what_an_index_costs():
    (finding,) = causes(deque_sampling(taking_s=4.5, drawing_s=0.5))
    assert finding.rule == "growing_sample"
    assert finding.gain == pytest.approx(10 / (5 + 2.4 * 0.5))
    assert "deque" in " ".join(finding.evidence)


def test_random_sample_of_a_list_is_fine():
    assert list(growing_sample.find(study(deque_sampling(taking_s=1.4, drawing_s=1.0)))) == []


def appending(text, self_s=3.0, phase=Phase.STORE, name="(Env.step → Net)", kind="gap"):
    line = frame("collect", "ppo.py", 30, text)
    return make_trace(
        [
            place("Env.step", Phase.ENV, 10 - self_s, 10_000),
            place(name, phase, self_s, 10_000, kind=kind),
        ],
        [seen(name, [line], self_s)],
        {"env_steps": 160_000, "vector_steps": 10_000, "updates": 1000},
    )


@pytest.mark.parametrize(
    "text",
    [
        "self.states = torch.cat([self.states, states[None]])",
        "self.states = torch.cat((self.states, states[None]), dim=0)",
        "rewards = np.append(rewards, reward)",
        "self.obs = np.vstack([self.obs, obs])",
        "data['x'] = np.concatenate([data['x'], x], axis=0)",
        "self.memory = np.concatenate([self.memory, new])[-CAPACITY:]",
        "frame = pd.concat([frame, row])",
    ],
)
def test_an_array_grown_by_appending_is_found(text):
    (finding,) = causes(appending(text))
    assert (finding.rule, finding.line) == ("growing_array", 30)
    # 300 µs a step become one row of 3 µs.
    assert finding.gain == pytest.approx(10 / (7 - 0.3 * 3 + 10_000 * 3e-6))


@pytest.mark.parametrize(
    "text",
    [
        "self.stack = np.concatenate([self.stack[1:], frame[None]])",
        "x = torch.cat([x, action], dim=1)",
        "x = torch.cat([x, action], -1)",
        "x = torch.cat((x, action), 1)",
        "batch = np.concatenate([part.states for part in parts])",
        "self.rewards.append(reward)",
        "self.states[self.size] = states",
    ],
)
def test_windows_features_and_lists_do_not_grow(text):
    assert list(growing_array.find(study(appending(text)))) == []


def test_what_a_network_joins_is_not_a_growing_array():
    trace = appending("x = torch.cat([x, skip])", phase=Phase.FORWARD, name="Net", kind="span")
    assert list(growing_array.find(study(trace))) == []


def logging(calls, self_s=3.0, text="writer.add_scalar('loss', loss, step)", name="SummaryWriter.add_scalar"):
    return make_trace(
        [
            place(name, Phase.LOG, self_s, calls),
            place("Env.step", Phase.ENV, 10 - self_s, 10_000),
        ],
        [seen(name, [frame("train", "dqn.py", 50, text)], self_s)],
        {"env_steps": 10_000, "vector_steps": 10_000, "updates": 10_000},
    )


def test_a_scalar_written_every_step_is_found():
    (finding,) = causes(logging(calls=10_000))
    assert (finding.rule, finding.line, finding.phase) == ("logging_stall", 50, Phase.LOG)
    assert finding.gain == pytest.approx(10 / (7 + 3 * 0.01))
    assert "1 calls a step of SummaryWriter.add_scalar" in finding.evidence[1]


def test_logging_that_is_rare_already_is_left_alone():
    assert rules(logging(calls=100)) == []


def test_a_callback_that_writes_nothing_is_not_logging():
    assert rules(logging(calls=10_000, name="MyCallback.on_step", text="self.n_calls += 1")) == []


@pytest.mark.parametrize(
    "text",
    [
        "self.file.flush()",
        "log_file.write(f'{step},{reward}')",
        "writer.writerow([step, reward])",
        "with open(path, 'a') as file:",
        "os.fsync(file.fileno())",
    ],
)
def test_files_written_in_the_loop_are_logging(text):
    (finding,) = causes(appending(text))
    assert finding.rule == "logging_stall"
    assert finding.gain == pytest.approx(10 / (7 + 3 * 0.01))


def saving(calls, self_s, text="torch.save(agent.state_dict(), path)", phase=Phase.CHECKPOINT):
    saves = place("torch.save", phase, self_s, calls, max_ns=2_000_000_000)
    return make_trace(
        [saves, place("Env.step", Phase.ENV, 10 - self_s, 10_000)],
        [seen("torch.save", [frame("save", "dqn.py", 70, text)], self_s)],
        {"env_steps": 10_000, "updates": 10_000},
    )


def test_checkpoints_saved_too_often_are_found():
    (finding,) = causes(saving(calls=50, self_s=4.0))
    assert (finding.rule, finding.line, finding.phase) == ("checkpoint_stall", 70, Phase.CHECKPOINT)
    # 1 % of the 6 s that are left; after each save 300 µs for cold caches.
    assert finding.gain == pytest.approx(10 / (6 - 50 * 300e-6 + 0.06))
    assert "50 saves in 10 s, one in 200 ms" in finding.evidence[1]
    assert "a save takes 80 ms, the longest took 2 s" in finding.evidence[2]


def test_two_saves_say_nothing_about_how_often():
    assert rules(saving(calls=2, self_s=4.0)) == []


def test_saves_that_take_little_are_left_alone():
    assert list(checkpoint_stall.find(study(saving(calls=50, self_s=0.1)))) == []


def collecting(called_s, counts):
    line = frame("main", "dqn.py", 80, "gc.collect()")
    store = frame("store", "dqn.py", 33, "self.memory.append(Transition(s, a, r, s2, d))")
    between = gap("(Env.step → Net)", Phase.STORE, 2.0)
    return make_trace(
        [
            *([place("gc.collect", Phase.OTHER, called_s, 40)] if called_s else []),
            between,
            place("Env.step", Phase.ENV, 8 - called_s, 10_000),
        ],
        [
            *([seen("gc.collect", [line], called_s)] if called_s else []),
            seen("(Env.step → Net)", [store], 2.0),
        ],
        {"env_steps": 10_000} | counts,
    )


def test_a_call_of_the_collector_in_the_loop_is_found():
    trace = collecting(4.0, {"gc_pauses": 45, "gc_pause_ns": 4_050_000_000})
    (finding,) = causes(trace)
    assert (finding.rule, finding.line) == ("gc_pauses", 80)
    assert finding.gain == pytest.approx(10 / (6 - 40 * 300e-6 + 0.04))
    assert "40 calls, 100 ms each" in finding.evidence[1]


def test_pauses_of_its_own_are_found():
    trace = collecting(0.0, {"gc_pauses": 100, "gc_pause_ns": 2_000_000_000})
    (finding,) = causes(trace)
    assert (finding.rule, finding.line) == ("gc_pauses", 33)
    assert finding.share == pytest.approx(0.2)
    assert finding.gain == pytest.approx(10 / (8 + 2 * 0.15))
    assert "100 collections, 20 ms on average" in finding.evidence[2]


def test_ordinary_collections_are_left_alone():
    assert list(gc_pauses.find(study(collecting(0.0, {"gc_pauses": 900, "gc_pause_ns": 100_000_000})))) == []


def keeping(rss_mb, text="history.append(values.mean())", counts=None, machine=None, reserved_mb=None):
    line = frame("collect", "ppo.py", 43, text)
    return make_trace(
        [
            place("(Policy → Env.step)", Phase.ACT, 1.0, kind="gap"),
            place("Env.step", Phase.ENV, 9.0, 1000, cpu_memory_bytes=100 * MB),
        ],
        [seen("(Policy → Env.step)", [line], 1.0)],
        {"env_steps": 1000} | (counts or {}),
        machine=machine,
        process={
            "memory_bytes": [round(mb * MB) for mb in rss_mb],
            "reserved_bytes": None if reserved_mb is None else [round(mb * MB) for mb in reserved_mb],
        },
    )


def test_memory_that_keeps_growing_is_told_with_the_line_that_keeps():
    (finding,) = causes(keeping(np.linspace(300, 600, 31)))
    assert (finding.rule, finding.file, finding.line) == ("memory_growth", "ppo.py", 43)
    assert finding.gain == 1.0
    # 300 MB in 10 s and 1000 steps; (16 GiB - 550 MiB) are left at the last third's median.
    told = " ".join(finding.evidence)
    assert "31.5 MB/s, 315 kB an environment step" in told
    assert "the machine's 17.2 GB are full in 9 minutes" in told


@pytest.mark.parametrize(
    "rss_mb",
    [
        np.full(31, 400),
        np.linspace(300, 330, 31),
        [*np.linspace(300, 600, 10), *np.full(21, 600)],
        [300, 600],
    ],
)
def test_memory_that_is_flat_or_settles_or_was_hardly_seen_is_fine(rss_mb):
    assert list(memory_growth.find(study(keeping(rss_mb)))) == []


def test_replay_that_fills_up_is_no_leak():
    stored = {"replay_adds_bytes": 250 * MB}
    assert list(memory_growth.find(study(keeping(np.linspace(300, 600, 31), counts=stored)))) == []


@pytest.mark.parametrize(("last_mb", "found"), [(1000, False), (1050, False), (1100, True), (1300, True)])
def test_a_buffer_that_was_made_whole_and_fills_is_no_leak(last_mb, found):
    """Of 200 MiB between the first and the last third, at least 60 must be newly asked for."""
    trace = keeping(np.linspace(300, 600, 31), reserved_mb=np.linspace(1000, last_mb, 31))
    assert bool(list(memory_growth.find(study(trace)))) is found


def test_a_recording_that_does_not_tell_what_was_asked_for_is_judged_without():
    assert list(memory_growth.find(study(keeping(np.linspace(300, 600, 31), reserved_mb=np.zeros(31)))))


def test_growth_that_takes_more_than_a_day_is_not_told():
    huge = {"memory_bytes": 1 << 50}
    assert list(memory_growth.find(study(keeping(np.linspace(300, 600, 31), machine=huge)))) == []


def test_a_detached_value_is_not_blamed():
    (finding,) = causes(keeping(np.linspace(300, 600, 31), text="history.append(values.mean().item())"))
    assert (finding.rule, finding.line) == ("memory_growth", 0)


def test_paging_is_told():
    (finding,) = causes(keeping(np.full(31, 400), counts={"page_faults_major": 5000}))
    assert finding.rule == "memory_growth"
    assert "500 major page faults a second" in " ".join(finding.evidence)


def churning(stack, self_s=4.0, steps=20_000, phase=Phase.ENV, name="Zelda.step"):
    return make_trace(
        [place(name, phase, self_s, steps), place("backward", Phase.BACKWARD, 10 - self_s, 1000)],
        [seen(name, stack, self_s)],
        {"env_steps": steps, "updates": 1000},
    )


LOCATED = frame("Zelda.step", "zelda.py", 9, "places = [Location(x, y) for x, y in near]")


@pytest.mark.parametrize(
    "stack",
    [
        [frame("Zelda.change", "zelda.py", 5, "old, new = getattr(before, name), getattr(after, name)")],
        [frame("Zelda.change", "zelda.py", 5, "if not isinstance(old, int):")],
        [frame("Location.__init__", "zelda.py", 5, "self.x, self.y = x, y"), LOCATED],
        [frame("Location.__hash__", "zelda.py", 5, "return hash((self.x, self.y))"), LOCATED],
        [frame("cached_property.__get__", "/lib/functools.py", 992, own=False), LOCATED],
        [frame("EnumType.__call__", "/lib/enum.py", 685, own=False), LOCATED],
        [frame("deepcopy", "/lib/copy.py", 128, own=False), LOCATED],
    ],
)
def test_small_objects_and_lookups_by_name_are_found(stack):
    (finding,) = causes(churning(stack))
    assert finding.rule == "object_churn"
    assert finding.share == pytest.approx(0.4)
    assert finding.gain == pytest.approx(10 / (6 + 4 * 0.15))
    assert "200 µs an environment step" in finding.evidence[1]


@pytest.mark.parametrize(
    "stack",
    [
        [frame("Zelda.step", "zelda.py", 9, "self.position = self.position + MOVES[action]")],
        [frame("resize", "/lib/cv2.py", 9, own=False), LOCATED],
        [frame("State.__init__", "zelda.py", 5, "self.room = Room(torch.from_numpy(ram[64:].copy()))")],
        [frame("Zelda.step", "zelda.py", 5, "if isinstance(obs, dict): obs = np.concatenate(list(obs.values()))")],
    ],
)
def test_arithmetic_and_library_calls_are_no_churn(stack):
    assert list(object_churn.find(study(churning(stack)))) == []


def test_a_few_objects_a_step_are_no_churn():
    stack = [frame("Location.__init__", "zelda.py", 5, "self.x, self.y = x, y")]
    assert list(object_churn.find(study(churning(stack, steps=1_000_000)))) == []


def test_what_a_network_does_by_name_is_no_churn():
    stack = [frame("Net.forward", "net.py", 5, "if isinstance(x, tuple):")]
    assert list(object_churn.find(study(churning(stack, phase=Phase.FORWARD, name="Net")))) == []


def test_logging_gives_way_to_saving():
    trace = saving(calls=50, self_s=4.0, text="pickle.dump(replay, file)")
    assert list(logging_stall.find(study(trace))) == []
