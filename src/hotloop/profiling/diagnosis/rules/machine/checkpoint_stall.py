"""Training stops too often to save a model or a replay buffer.

**Seen by.** Time in `torch.save`, `pickle.dump`, `np.save`, safetensors or SB3's `save`: more than 1 % of the loop and
at least three saves in the recording. The evidence says how often, and how long the longest took.

**Residual.** Saves that take 1 % of the time.
"""

from __future__ import annotations

import re

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.claims import grow, indices, matching
from hotloop.profiling.diagnosis.evidence import duration, hottest, percent
from hotloop.profiling.diagnosis.finding import Cause, Causes, clamped
from hotloop.profiling.diagnosis.time_slices import Loop, total_ns

SAVES = re.compile(
    r"\btorch\.save\(|\b(pickle|dill|joblib|cloudpickle)\.dump\(|\b(np|numpy)\.(save|savez|savez_compressed)\("
    r"|\.save_replay_buffer\(|\bsave_file\("
)
FEWEST = 3
"""Saves in the recording: one or two do not show how often it happens."""
TARGET_SHARE = 0.01
ADVICE = """\
Save by the clock, and only what is needed to go on:
    if time.monotonic() - saved_at > 300:        # every five minutes
        torch.save(agent.state_dict(), path)     # weights; the replay buffer once, at the end, or memory-mapped
        saved_at = time.monotonic()
On a GPU copy the weights first and write the file in a thread."""


def find(loop: Loop) -> Causes:
    """Find time in which the main thread saves."""
    spanned = loop.where(lambda atom: loop.outermost(atom.node, Phase.CHECKPOINT) is not None)
    claimed = grow([*spanned, *matching(loop.atoms, SAVES)], loop.atoms)
    saves = {node.id: node for atom in claimed if (node := loop.outermost(atom.node, Phase.CHECKPOINT))}
    calls = sum(node.calls for node in saves.values())
    share = loop.share(claimed)
    if calls < FEWEST or share <= TARGET_SHARE:
        return
    # What is saved once in a long time takes 1 % of what the loop then takes.
    left = TARGET_SHARE * (1 - share) / share
    yield Cause(
        title="Training stops for checkpoints, which are saved too often.",
        atoms=indices(claimed),
        residual=clamped(left, 0.0, 3 * left),
        evidence=(
            f"{calls} saves in {duration(loop.wall_ns)}, one in {duration(loop.wall_ns / calls)}; "
            f"the gain is for saves that take {percent(TARGET_SHARE)} of the time",
            f"a save takes {duration(total_ns(claimed) / calls)}, the longest took "
            f"{duration(max(node.max_ns for node in saves.values()))}",
            hottest(loop, claimed),
        ),
        sweeps=calls,
    )
