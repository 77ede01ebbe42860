"""Torch.compile compiles the same function again and again while the agent trains.

**Cause.** Compiled code holds for the shapes and Python values it was made with. A batch of another length each time,
compiled with `dynamic=False`, or a number in an attribute that changes, makes torch.compile begin again, up to eight
times; then it runs the function uncompiled. Raising the limit makes it go on for longer: here 50 ms for a loss of two
layers without code generation, and many seconds with it.

**Seen by.** Compilations counted as torch announces them, three or more of code that had been compiled before; the
time is that of stacks inside the compiler. First compilations are not counted.

**Cure.**
```python
loss = torch.compile(loss_of, dynamic=True)  # lengths that vary: compiled once for all
batch = batch[: len(batch) // 64 * 64]  # or few fixed lengths
loss(batch, torch.tensor(coefficient))  # a number that changes goes in as a tensor
```
`TORCH_LOGS=recompiles` says what had changed.

**Residual.** The first compilations' part of the time.
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
