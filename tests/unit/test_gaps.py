"""The phase of the time between two spans."""

from __future__ import annotations

from collections import Counter

import pytest

from hotloop.spans import Phase
from hotloop.trace.gaps import gap_phase, phase_of_stack
from hotloop.trace.model import Frame

NOTHING: Counter = Counter()


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
    assert gap_phase(before, after, NOTHING) is phase


@pytest.mark.parametrize("before", [None, *Phase])
@pytest.mark.parametrize("after", [None, *Phase])
def test_every_pair_of_neighbours_has_a_phase(before, after):
    assert isinstance(gap_phase(before, after, NOTHING), Phase)


def test_lines_overrule_the_neighbours_only_where_most_say_so():
    seen = Counter({Phase.LOG: 3, None: 2})
    assert gap_phase(Phase.FORWARD, Phase.BACKWARD, seen) is Phase.LOG
    assert gap_phase(Phase.FORWARD, Phase.BACKWARD, Counter({Phase.LOG: 2, None: 3})) is Phase.FORWARD
    assert gap_phase(Phase.FORWARD, Phase.BACKWARD, Counter({Phase.LOG: 2})) is Phase.FORWARD, "too few"


def frame(text: str, file: str = "train.py", own: bool = True) -> Frame:
    return Frame("f", file, 1, text, own)


@pytest.mark.parametrize(
    ("text", "phase"),
    [
        ("print(step)", Phase.LOG),
        ("target.load_state_dict(net.state_dict())", Phase.SYNC_WEIGHTS),
        ("torch.save(net, path)", Phase.CHECKPOINT),
        ("x = y + 1", None),
    ],
)
def test_the_users_own_line_tells(text, phase):
    library = frame("", "/lib/site-packages/torch/x.py", own=False)
    assert phase_of_stack((library, frame(text))) is phase


def test_else_the_library_tells_and_nothing_tells_nothing():
    assert phase_of_stack((frame("", "/x/site-packages/tqdm/std.py", False), frame("step()"))) is Phase.LOG
    assert phase_of_stack(()) is None
