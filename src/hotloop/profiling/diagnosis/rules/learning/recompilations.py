"""`torch.compile` compiles the same function again and again during training.

Compiled code is valid for the shapes and Python values it was compiled with. Batches of varying length with
`dynamic=False`, or a number in an attribute that changes, make torch.compile start again, up to eight times; after that
it runs the function uncompiled. Raising the limit only prolongs this. Each compilation took 50 ms for a loss of two
layers without code generation, and many seconds with it.

**Seen by.** Three or more compilations, as reported by torch, of code that was compiled before. The rule claims stacks
inside the compiler. First compilations are not counted.

**Residual.** The share of first compilations.
"""

from __future__ import annotations

import re

from hotloop.profiling.diagnosis.claims import indices, passes_through
from hotloop.profiling.diagnosis.evidence import duration, meeting_line, times
from hotloop.profiling.diagnosis.finding import Cause, Causes, clamped
from hotloop.profiling.diagnosis.time_slices import Loop, total_ns

COMPILER = re.compile(
    r"[/\\]torch[/\\](_dynamo[/\\](?!eval_frame|external_utils|compiled_autograd)|_subclasses[/\\]"
    r"|_inductor[/\\](?!output_code|utils|runtime|cudagraph))"
)
"""Files that work while something is compiled and not when it runs. Stacks in the compiler are deep and may be cut."""
FEWEST = 3
"""One or two are ordinary: with and without gradients, then for shapes that vary."""
ADVICE = """\
Find out what changes (`TORCH_LOGS=recompiles python train.py` prints the guard that failed) and
keep it out of the compiled function:
    torch.compile(loss, dynamic=True)              # lengths that vary: compiled once for all of them
    batch = batch[: len(batch) // 64 * 64]         # or pad, or cut, to few fixed lengths
    loss(batch, torch.tensor(coefficient))         # a number that changes: as a tensor, not as a float or attribute
Raising the recompile limit only makes it go on for longer."""


def find(loop: Loop) -> Causes:
    """Find time spent on compiling what had been compiled before."""
    again = loop.counts.get("recompilations", 0)
    compiled = max(loop.counts.get("compilations", 0), again)
    claimed = loop.where(lambda atom: passes_through(atom, COMPILER))
    if again < FEWEST or not claimed:
        return
    first = 1.0 - again / compiled
    yield Cause(
        title=f"torch.compile compiled the same code again {times(again)} times while training.",
        atoms=indices(claimed),
        residual=clamped(first, 0.0, first + 0.1),
        evidence=(
            f"{times(compiled)} compilations, {times(again)} of them of code that had been compiled before",
            f"{duration(total_ns(claimed) / compiled)} each, one for every "
            f"{times(loop.updates / again)} updates and {times(loop.env_steps / again)} environment steps",
        ),
        sweeps=compiled,
        blame=meeting_line(claimed),
    )
