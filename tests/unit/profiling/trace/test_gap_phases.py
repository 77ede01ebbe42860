"""The phase of the time between two spans."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from tests.traces import gap, make_trace, seen

from hotloop.phases import Phase
from hotloop.profiling.trace.build.gap_phases import gap_phases, phase_of_stack
from hotloop.profiling.trace.build.process import _split_gap
from hotloop.profiling.trace.model import PART, Frame
from hotloop.profiling.trace.reading.names import NodeName, Sibling

NOTHING: Counter = Counter()


def between(before: Phase, after: Phase) -> NodeName:
    return NodeName(0, 1, 0, "gap", before=Sibling("a", before), after=Sibling("b", after))


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


def test_lines_that_no_time_is_known_of_stay_with_their_gap():
    """Regression: their samples were given the id of a part that there was not, and exports failed with a KeyError."""
    made = make_trace(
        [gap("(a → b)", Phase.OTHER, 0.0)], [seen("(a → b)", [frame("batch = random.sample(memory, 8)")], 0.0)]
    ).thread
    sampling = replace(made.samples[0], n=5)
    storing = replace(sampling, stack=(frame("memory.append(t)"),))
    known = between(Phase.ENV, Phase.FORWARD)
    parts, samples = _split_gap(made.nodes[1], known, [sampling, storing])
    assert {sample.node for sample in samples} == {part.id for part in parts} == {made.nodes[1].id}


def test_a_gap_is_divided_by_the_lines_seen_in_it():
    made = make_trace(
        [gap("(a → b)", Phase.OTHER, 10.0, counts={"host_syncs.item": 4})],
        [
            seen("(a → b)", [frame("batch = random.sample(memory, 8)")], 6.0, cpu=0.5),
            seen("(a → b)", [frame("x = y + 1")], 1.0),
            seen("(a → b)", [frame("memory.append(t)")], 3.0),
        ],
    ).thread
    known = between(Phase.ENV, Phase.FORWARD)
    whole = made.nodes[1]
    parts, samples = _split_gap(whole, known, list(made.samples))
    told = [(part.phase, part.self_ns / 1e9, part.cpu_ns / 1e9, dict(part.counts)) for part in parts]
    assert told == [
        (Phase.SAMPLE, 6.0, 3.0, {"host_syncs.item": 4}),
        (Phase.FORWARD, 1.0, 1.0, {}),
        (Phase.STORE, 3.0, 3.0, {}),
    ]
    assert [part.id for part in parts] == [whole.id, whole.id + PART, whole.id + 2 * PART]
    assert [sample.node for sample in samples] == [part.id for part in parts]
    thread = replace(made, nodes=(made.nodes[0], *parts))
    assert thread.recorded_ns(whole.id) == whole.self_ns
    assert thread.phase_shares[whole.id] == [(Phase.SAMPLE, 0.6), (Phase.FORWARD, 0.1), (Phase.STORE, 0.3)]


def test_a_gap_that_nobody_saw_is_its_neighbours():
    whole = make_trace([gap("(a → b)", Phase.OTHER, 10.0)]).thread.nodes[1]
    known = between(Phase.FORWARD, Phase.BACKWARD)
    assert _split_gap(whole, known, []) == ([replace(whole, phase=Phase.FORWARD)], [])
