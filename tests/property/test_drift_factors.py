"""The three factors of a drift multiply to the total drift for any counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.traces import make_trace, place

from hotloop.phases import Phase
from hotloop.profiling.trace.drift import BLOCKS, compare, cut

windows = st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 300), st.integers(0, 50)), min_size=1, max_size=60)


@given(windows)
def test_drift_factors_multiply_to_the_total(rows):
    names = ("env_steps", "episodes", "updates")
    counted = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    trace = make_trace(
        [place("Env.step", Phase.ENV, float(len(rows)))],
        counts={name: sum(amounts) for name, amounts in counted.items()},
        windows=counted,
    )
    blocks = cut(trace)
    if blocks is None:
        return
    used = blocks.place >= 0
    assert blocks.counts["env_steps"].sum() == sum(
        n for n, inside in zip(counted["env_steps"], used, strict=True) if inside
    )
    early, late = blocks.part(0, 1), blocks.part(BLOCKS - 2, BLOCKS - 1)
    factors = compare(early, late)
    assert factors.env_steps * factors.cost_per_step == pytest.approx(factors.seconds)
    if factors.episodes is not None and factors.steps_per_episode is not None:
        product = factors.episodes * factors.steps_per_episode * factors.cost_per_step
        assert product == pytest.approx(factors.seconds)
    else:
        assert not early.episodes or not late.episodes
