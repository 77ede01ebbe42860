"""Training stands still while a model or a replay buffer is saved, too often.

**Cause.** The loop waits while networks, optimisers or the replay buffer are pickled and written, and does so often.

**Seen by.** Time in `torch.save`, `pickle.dump`, `np.save`, safetensors, SB3's `save`: more than 1 % of the loop, at
least three saves in the recording. The evidence says how often, and how long the longest took.

**Cure.**
```python
if time.monotonic() - saved_at > 300:  # by the clock: what is at stake is five minutes of work
    torch.save(agent.state_dict(), path)  # weights; the replay buffer once at the end
    saved_at = time.monotonic()
```

**Residual.** Saves that take 1 % of the time.
"""

from __future__ import annotations

import re

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.evidence import duration, grow, hottest, indices, matching, percent, total_ns
from hotloop.profiling.diagnosis.finding import Cause, clamped
from hotloop.profiling.diagnosis.time_slices import Loop
from hotloop.profiling.trace.model import Node

SAVES = re.compile(
    r"\btorch\.save\(|\b(pickle|dill|joblib|cloudpickle)\.dump\(|\b(np|numpy)\.(save|savez|savez_compressed)\("
    r"|\.save_replay_buffer\(|\bsave_file\("
)
FEWEST = 3
"""Saves in the recording: one or two tell nothing about how often it happens."""
TARGET_SHARE = 0.01
ADVICE = """\
Save by the clock, and only what is needed to go on:
    if time.monotonic() - saved_at > 300:        # every five minutes
        torch.save(agent.state_dict(), path)     # weights; the replay buffer once, at the end, or memory-mapped
        saved_at = time.monotonic()
On a GPU copy the weights first and write the file in a thread."""


def find(loop: Loop) -> list[Cause]:
    """Find time in which the main thread saves."""
    claimed = [atom for atom in loop.atoms if outermost_save(loop, atom.node) is not None]
    inside = {atom.index for atom in claimed}
    claimed += [atom for atom in matching(loop.atoms, SAVES) if atom.index not in inside]
    claimed = grow(claimed, loop.atoms)
    saves = {node.id: node for atom in claimed if (node := outermost_save(loop, atom.node)) is not None}
    calls = sum(node.calls for node in saves.values())
    share = loop.share(claimed)
    if calls < FEWEST or share <= TARGET_SHARE:
        return []
    # What is saved once in a long time takes 1 % of what the loop then takes.
    left = TARGET_SHARE * (1 - share) / share
    return [
        Cause(
            rule="checkpoint_stall",
            title="Training stands still for checkpoints, which are saved too often.",
            atoms=indices(claimed),
            residual=clamped(left, 0.0, 3 * left),
            evidence=(
                f"{calls} saves in {duration(loop.wall_ns)}, one in {duration(loop.wall_ns / calls)}; "
                f"the gain is for saves that take {percent(TARGET_SHARE)} of the time",
                f"a save takes {duration(total_ns(claimed) / calls)}, the longest took "
                f"{duration(max(node.max_ns for node in saves.values()))}",
                hottest(loop, claimed),
            ),
            advice=ADVICE,
            sweeps=calls,
        )
    ]


def outermost_save(loop: Loop, node: Node) -> Node | None:
    """Return the outermost span of saving that a node is in, None if there is none."""
    spans = [each for each in loop.lineage(node) if each.kind == "span" and each.phase is Phase.CHECKPOINT]
    return spans[-1] if spans else None
