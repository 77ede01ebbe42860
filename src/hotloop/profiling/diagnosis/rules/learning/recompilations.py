"""recompilations: torch.compile compiles the same function again and again while the agent trains.

Compiled code holds for the shapes and Python values it was made with. Batches of a new length each time, or a
number kept in an attribute that changes, make it compile anew, up to a limit; then it runs uncompiled.
"""

from __future__ import annotations

import re

from hotloop.profiling.diagnosis.evidence import duration, indices, meeting_line, times, total_ns
from hotloop.profiling.diagnosis.finding import Cause, clamped
from hotloop.profiling.diagnosis.time_slices import Atom, Loop

COMPILER = re.compile(
    r"[/\\]torch[/\\](_dynamo[/\\](?!eval_frame|external_utils|compiled_autograd)|_subclasses[/\\]"
    r"|_inductor[/\\](?!output_code|utils|runtime|cudagraph))"
)
"""Files that work while something is compiled and not when it runs. Stacks in the compiler are deep and may be cut."""
FEWEST = 3
"""One or two are ordinary: with and without gradients, then for shapes that vary."""
ADVICE = """\
Find out what changes, and keep it out of the compiled function:
    TORCH_LOGS=recompiles python train.py          # says which guard failed
    torch.compile(loss, dynamic=True)              # lengths that vary: compiled once for all of them
    batch = batch[: len(batch) // 64 * 64]         # or pad, or cut, to few fixed lengths
    loss(batch, torch.tensor(coefficient))         # a number that changes: as a tensor, not as a float or attribute
Raising the recompile limit only makes it go on for longer."""


def find(loop: Loop) -> list[Cause]:
    """Find time spent on compiling what had been compiled before."""
    again = loop.counts.get("recompilations", 0)
    compiled = max(loop.counts.get("compilations", 0), again)
    claimed = loop.where(_compiles)
    if again < FEWEST or not claimed:
        return []
    first = 1.0 - again / compiled
    return [
        Cause(
            rule="recompilations",
            title=f"torch.compile compiled the same code again {times(again)} times while training.",
            atoms=indices(claimed),
            residual=clamped(first, 0.0, first + 0.1),
            evidence=(
                f"{times(compiled)} compilations, {times(again)} of them of code that had been compiled before",
                f"{duration(total_ns(claimed) / compiled)} each, one for every "
                f"{times(loop.updates / again)} updates and {times(loop.env_steps / again)} environment steps",
            ),
            advice=ADVICE,
            sweeps=compiled,
            blame=meeting_line(claimed),
        )
    ]


def _compiles(atom: Atom) -> bool:
    return any(COMPILER.search(frame.file) for frame in atom.stack)
