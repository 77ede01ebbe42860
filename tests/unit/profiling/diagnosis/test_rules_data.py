"""Rules on how experience is kept, drawn and passed on: where they fire, and where they must not."""

from __future__ import annotations

import pytest
from tests.traces import causes, frame, gap, make_process, make_thread, make_trace, place, seen

from hotloop.phases import Phase


def rules(trace):
    return [finding.rule for finding in causes(trace)]


def sampling(text, self_s=6.0, calls=200, mb_a_batch=75.0, added=0):
    """A loop of 10 s whose replay draws batches on one line for `self_s`."""
    moved = round(mb_a_batch * 1e6 * calls)
    line = frame("sample", "replay.py", 42, text)
    return make_trace(
        [
            place("Replay.sample", Phase.SAMPLE, self_s, calls, counts={"replay_bytes": moved}),
            place("Env.step", Phase.ENV, 10.0 - self_s, 1000),
        ],
        [seen("Replay.sample", [line], self_s)],
        {"env_steps": 1000, "vector_steps": 1000, "updates": calls, "replay_bytes": moved}
        | ({"replay_adds_bytes": added} if added else {}),
    )


@pytest.mark.parametrize(
    "text",
    [
        "states = torch.FloatTensor(np.array(states)).to(self.device)",
        "states = np.stack([t[0] for t in batch])",
        "obs = torch.tensor(np.array([t.obs for t in batch]))",
    ],
)
def test_a_batch_built_from_a_list_is_found(text):
    trace = sampling(text)
    (finding,) = causes(trace)
    assert (finding.rule, finding.file, finding.line) == ("list_batch", "replay.py", 42)
    # 6 s in 200 calls leave 5 µs a call, for one column, and 75 MB, one and a half times, at 8 GB/s.
    left = 200 * (5e-6 + 1.5 * 75e6 / 8e9)
    assert finding.gain == pytest.approx(10 / (4 - 200 * 300e-6 + left))
    assert "75 MB a batch in 30 ms: 2.5 GB/s" in " ".join(finding.evidence)


@pytest.mark.parametrize(
    "text",
    [
        "states = torch.from_numpy(self.states[i])",
        "states = torch.as_tensor(self.states[index])",
        "states = torch.tensor(self.states[index])",
    ],
)
def test_a_gather_by_index_is_not_a_list_batch(text):
    assert rules(sampling(text)) == []


def test_lists_become_arrays_elsewhere_without_a_finding():
    line = frame("step", "env.py", 7, "return np.array(self.rewards)")
    trace = make_trace(
        [place("Env.step", Phase.ENV, 1.0, 1_000_000), place("backward", Phase.BACKWARD, 9.0, 1000)],
        [seen("Env.step", [line], 1.0)],
        {"env_steps": 1_000_000, "updates": 1000},
    )
    assert rules(trace) == []


def test_heavy_transitions_are_found_and_light_ones_are_not():
    text = "states = torch.from_numpy(self.states[i])"
    heavy = sampling(text, added=226_000 * 1000)
    (finding,) = causes(heavy)
    assert finding.rule == "float32_frames"
    assert "226 kB" in finding.evidence[1]
    assert rules(sampling(text, added=7_000 * 1000)) == []


def test_a_list_of_float_stacks_is_one_finding_not_two():
    trace = sampling("s = torch.FloatTensor(np.array(s))", mb_a_batch=10, added=226_000 * 1000)
    assert rules(trace) == ["list_batch"]


def pushing(num_envs, pushes, items):
    """A loop of 10 s, 100 vector steps, 5 s of it storing."""
    line = frame("store", "dqn.py", 20, "actions[i].item(),")
    inner = frame("push", "dqn.py", 9, "self.states[i] = state")
    between = gap("(Replay.push → Replay.push)", Phase.STORE, 3.0, counts={"host_syncs.item": 100 * items})
    return make_trace(
        [
            place("Replay.push", Phase.STORE, 2.0, 100 * pushes),
            between,
            place("Env.step", Phase.ENV, 5.0, 100),
        ],
        [
            seen("(Replay.push → Replay.push)", [line], 3.0),
            seen("Replay.push", [inner, line], 2.0),
        ],
        {"env_steps": 100 * num_envs, "vector_steps": 100, "host_syncs.item": 100 * items},
    )


def test_a_push_for_every_environment_is_found():
    (finding,) = causes(pushing(num_envs=256, pushes=256, items=768))
    assert (finding.rule, finding.line, finding.phase) == ("item_push", 20, Phase.OWN)
    assert finding.share == pytest.approx(0.5)
    # A batched push of 60 µs is left of 50 ms a step.
    assert finding.gain == pytest.approx(10 / (5 + 100 * 60e-6))
    assert "256 store calls and 768 values" in finding.evidence[1]


def test_one_push_a_vector_step_is_fine():
    assert rules(pushing(num_envs=256, pushes=1, items=5)) == []


def test_a_single_environment_may_push_each_step():
    assert rules(pushing(num_envs=1, pushes=1, items=3)) == []


def test_a_push_per_environment_without_host_syncs_is_found():
    assert rules(pushing(num_envs=64, pushes=64, items=0)) == ["item_push"]


PICKLE = frame("dumps", "/lib/python3/multiprocessing/reduction.py", 51, "p.dump(obj)", own=False)


def queueing(gets, wait_s=6.0, name="Queue.get", pickle_s=7.0):
    """A learner that waits `wait_s` of 10 s in `gets` calls while a collector makes 1000 steps."""
    stack = [
        frame("get", "/lib/python3/multiprocessing/queues.py", 103, "res = self._recv_bytes()", own=False),
        frame("drain", "learner.py", 31, "item = queue.get()"),
    ]
    put = [
        place("Queue.put", Phase.WAIT, pickle_s, 1000),
        place("Env.step", Phase.ENV, 10.0 - pickle_s, 1000),
    ]
    worker = make_process(
        [make_thread(put, [seen("Queue.put", [PICKLE], pickle_s)])], {"env_steps": 1000}, pid=7, main=False
    )
    return make_trace(
        [place(name, Phase.WAIT, wait_s, gets), place("backward", Phase.BACKWARD, 10 - wait_s, 50)],
        [seen(name, stack if name == "Queue.get" else stack[1:], wait_s, cpu=0.0)],
        {"updates": 50},
        others=[worker],
    )


def test_a_queue_with_one_item_a_step_is_found():
    (finding,) = causes(queueing(gets=1000))
    assert (finding.rule, finding.file, finding.line) == ("queue_contention", "learner.py", 31)
    assert finding.phase is Phase.WAIT
    assert "1 queue calls an environment step" in finding.evidence[1]
    # The collector needs 3 s without its pickling, the learner 4 s: the learner sets the pace.
    assert finding.gain == pytest.approx(10 / (4 + 0.03 * 6))


def test_what_the_collectors_need_without_the_queue_limits_the_gain():
    (finding,) = causes(queueing(gets=1000, pickle_s=3.0))
    assert finding.gain == pytest.approx(10 / (7 + 0.03 * 6))
    assert rules(queueing(gets=1000, pickle_s=0.0)) == []


def test_a_queue_of_fragments_is_fine():
    assert rules(queueing(gets=20)) == []


@pytest.mark.parametrize(
    ("name", "file"), [("Queue.get", "/lib/python3/queue.py"), ("Condition.wait", "/lib/python3/threading.py")]
)
def test_a_queue_between_threads_or_a_pool_of_them_pickles_nothing(name, file):
    line = frame("step", "learner.py", 31, "done = [each.result() for each in jobs]")
    stack = [frame("wait", file, 180, own=False), line]
    trace = make_trace(
        [place(name, Phase.WAIT, 6.0, 8000), place("backward", Phase.BACKWARD, 4.0, 50)],
        [seen(name, stack, 6.0, cpu=0.0)],
        {"env_steps": 8000, "updates": 50},
    )
    assert "queue_contention" not in rules(trace)


def test_waiting_for_worker_environments_is_not_a_queue():
    assert rules(queueing(gets=1000, name="Connection.recv")) == []
