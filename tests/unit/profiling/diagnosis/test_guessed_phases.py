"""The phase of the time between two spans."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from tests.traces import gap, make_trace, seen

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.guessed_phases import PART, gap_phases, phase_of_stack, with_guessed_phases
from hotloop.profiling.trace.model import Frame, Thread

NOTHING: Counter = Counter()


def own_gap(thread: Thread, before: Phase, after: Phase) -> Thread:
    """The same thread, with its first gap as a recording has it: own code between two spans."""
    root, first, *rest = thread.nodes
    return replace(thread, nodes=(root, replace(first, phase=Phase.OWN, between=(before, after)), *rest))


@pytest.mark.parametrize(
    ("before", "after", "phase"),
    [
        (Phase.FORWARD, Phase.BACKWARD, Phase.FORWARD),
        (Phase.BACKWARD, Phase.OPTIMISE, Phase.OPTIMISE),
        (Phase.ENV, Phase.STORE, Phase.STORE),
        (Phase.STORE, Phase.SAMPLE, Phase.STORE),
        (Phase.SAMPLE, Phase.FORWARD, Phase.FORWARD),
        (Phase.OPTIMISE, Phase.ACT, Phase.ACT),
        (Phase.ACT, Phase.ENV, Phase.ACT),
        (Phase.ENV, Phase.ACT, Phase.OBSERVE),
        (Phase.OPTIMISE, None, Phase.OPTIMISE),
        (None, None, Phase.OTHER),
    ],
)
def test_neighbours_tell(before, after, phase):
    assert gap_phases(before, after, NOTHING) == {None: phase}


@pytest.mark.parametrize("before", [None, *Phase])
@pytest.mark.parametrize("after", [None, *Phase])
def test_every_pair_of_neighbours_has_a_phase(before, after):
    assert isinstance(gap_phases(before, after, NOTHING)[None], Phase)


def test_lines_overrule_the_neighbours_where_they_were_seen():
    often = Counter({Phase.LOG: 3, Phase.SAMPLE: 2, None: 9})
    found = gap_phases(Phase.FORWARD, Phase.BACKWARD, often)
    assert found == {Phase.LOG: Phase.LOG, Phase.SAMPLE: Phase.FORWARD, None: Phase.FORWARD}, "two are too few"


def frame(text: str, file: str = "train.py", own: bool = True) -> Frame:
    return Frame("f", file, 1, text, own)


@pytest.mark.parametrize(
    ("text", "phase"),
    [
        ("print(step)", Phase.LOG),
        ("target.load_state_dict(net.state_dict())", Phase.SYNC_WEIGHTS),
        ("torch.save(net, path)", Phase.CHECKPOINT),
        ("batch = random.sample(memory, 128)", Phase.SAMPLE),
        ("i = np.random.randint(0, len(self.replay_buffer), size=32)", Phase.SAMPLE),
        ("data = rb.buffer.sample(args.batch_size)", Phase.SAMPLE),
        ("states = torch.tensor(np.array([t[0] for t in batch]))", Phase.SAMPLE),
        ("s, a, r, s2, d = map(np.stack, zip(*batch))", Phase.SAMPLE),
        ("obs = np.stack(minibatch.obs)", Phase.SAMPLE),
        ("i = np.random.randint(0, memory.n, 64)", Phase.SAMPLE),
        ("i = rng.integers(self.buffer.size, size=64)", Phase.SAMPLE),
        ("obs = torch.from_numpy(memory.obs[i])", Phase.SAMPLE),
        ("obs = torch.as_tensor(self.replay_obs[i], device=device)", Phase.SAMPLE),
        ("torch._foreach_lerp_(target, online, 0.005)", Phase.SYNC_WEIGHTS),
        ("memory.obs[at] = obs", Phase.STORE),
        ("self.buffer[self.at] = obs", Phase.STORE),
        ("if memory.obs[at] == obs:", None),
        ("replay.priorities[index[i].item()] = abs(td[i].item()) ** 0.6", None),
        ("memory.append((obs, action, reward, nxt, done))", Phase.STORE),
        ("self.replay.push(transition)", Phase.STORE),
        ("rewards.append(reward)", Phase.STORE),
        ("action = env.action_space.sample()", Phase.ACT),
        ("action = dist.sample()", None),
        ("a = random.randrange(len(ACTIONS))", None),
        ("loss = F.mse_loss(q(batch.obs).gather(1, batch.actions), target)", None),
        ("x = y + 1", None),
    ],
)
def test_the_users_own_line_tells(text, phase):
    library = frame("", "/lib/site-packages/torch/x.py", own=False)
    assert phase_of_stack((library, frame(text))) is phase


def test_else_the_library_tells_and_nothing_tells_nothing():
    assert phase_of_stack((frame("", "/x/site-packages/tqdm/std.py", False), frame("step()"))) is Phase.LOG
    assert phase_of_stack(()) is None


def test_lines_without_time_stay_with_their_gap():
    """Regression: their samples were given the id of a part that did not exist, and exports failed with a KeyError."""
    made = make_trace(
        [gap("(a → b)", Phase.OTHER, 0.0)], [seen("(a → b)", [frame("batch = random.sample(memory, 8)")], 0.0)]
    ).thread
    sampling = replace(made.samples[0], n=5)
    storing = replace(sampling, stack=(frame("memory.append(t)"),))
    thread = with_guessed_phases(own_gap(replace(made, samples=(sampling, storing)), Phase.ENV, Phase.FORWARD))
    assert {sample.node for sample in thread.samples} == {thread.nodes[1].id} and len(thread.nodes) == 2


def test_a_gap_is_divided_by_the_lines_seen_in_it():
    made = make_trace(
        [gap("(a → b)", Phase.OTHER, 10.0, counts={"host_syncs.item": 4})],
        [
            seen("(a → b)", [frame("batch = random.sample(memory, 8)")], 6.0, cpu=0.5),
            seen("(a → b)", [frame("x = y + 1")], 1.0),
            seen("(a → b)", [frame("memory.append(t)")], 3.0),
        ],
    ).thread
    thread = with_guessed_phases(own_gap(made, Phase.ENV, Phase.FORWARD))
    parts = thread.nodes[1:]
    assert [(part.phase, part.self_ns / 1e9, part.cpu_ns / 1e9, dict(part.counts)) for part in parts] == [
        (Phase.SAMPLE, 6.0, 3.0, {"host_syncs.item": 4}),
        (Phase.FORWARD, 1.0, 1.0, {}),
        (Phase.STORE, 3.0, 3.0, {}),
    ]
    first = made.nodes[1].id
    assert [part.id for part in parts] == [first, first + PART, first + 2 * PART]
    assert [sample.node for sample in thread.samples] == [part.id for part in parts]


def test_a_gap_without_samples_follows_its_neighbours():
    made = make_trace([gap("(a → b)", Phase.OTHER, 10.0)]).thread
    thread = with_guessed_phases(own_gap(made, Phase.FORWARD, Phase.BACKWARD))
    assert [node.phase for node in thread.nodes[1:]] == [Phase.FORWARD]
