"""Most of an environment step is drawing an image.

The image is large, anti-aliased, shrunk afterwards, or redrawn although most of it did not change.

**Seen by.** Time in `render`, in functions that draw, in PIL, pygame, OpenCV or matplotlib: at least 30 % of the
environment's time and at least 200 µs per environment step.

**Residual.** 100 µs per environment step (33 to 300 µs): a few dozen array operations.
"""

from __future__ import annotations

import re

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.claims import bare_name, busy_ns, indices, left_over, passes_through
from hotloop.profiling.diagnosis.evidence import duration, hottest, percent
from hotloop.profiling.diagnosis.finding import Cause, Causes
from hotloop.profiling.diagnosis.time_slices import ENVIRONMENT, Atom, Loop, total_ns

LIBRARY = re.compile(r"[/\\](PIL|pygame|cv2|matplotlib|cairo|OpenGL|pyglet|skimage)[/\\]")
CALLS = re.compile(r"\b(pygame|cv2|ImageDraw|Image|gfxdraw|plt)\.\w|\bdraw\.\w+\(|\.(blit|resize|smoothscale)\(")
DRAWS = re.compile(r"render|draw|paint|rasteri", re.IGNORECASE)
LEAST_OF_ENV = 0.3
DIRECT_DRAW_NS = 100_000
"""What drawing a small picture with array operations takes: some tens of them, and writing the pixels."""
ADVICE = """\
Draw at the size the agent sees, on a copy of what does not change:
    self.background = self._draw_board()           # once an episode, [128, 128, 3] uint8
    frame = self.background.copy()
    for y, x, sprite, mask in self.moving():       # small precomputed sprites
        np.copyto(frame[y:y + S, x:x + S], sprite, where=mask)
Train without render_mode, and draw only the frames that are observed."""


def find(loop: Loop) -> Causes:
    """Find drawing that takes a large part of the environment's time."""
    around = ENVIRONMENT | {Phase.OTHER, Phase.ACT, Phase.STORE}
    pool = loop.where(lambda atom: bool(loop.phases(atom.node) & ENVIRONMENT) or atom.node.phase in around)
    claimed = [atom for atom in pool if _draws(loop, atom)]
    env_ns = total_ns(atom for atom in pool if loop.phases(atom.node) & ENVIRONMENT)
    steps = max(loop.env_steps, 1)
    # Drawing without an environment, such as plots, is not covered.
    large = total_ns(claimed) >= LEAST_OF_ENV * env_ns and busy_ns(claimed) / steps >= 2 * DIRECT_DRAW_NS
    if not env_ns or not large:
        return
    # Images may be drawn outside of the environment's spans, for example in a wrapper.
    whole_ns = env_ns + total_ns(atom for atom in claimed if not loop.phases(atom.node) & ENVIRONMENT)
    yield Cause(
        title="Most of an environment step is drawing the picture.",
        atoms=indices(claimed),
        residual=left_over(claimed, steps * DIRECT_DRAW_NS, low=1 / 3, high=3.0),
        evidence=(
            f"drawing takes {duration(total_ns(claimed) / steps)} of the "
            f"{duration(whole_ns / steps)} of an environment step ({percent(total_ns(claimed) / whole_ns)})",
            hottest(loop, claimed),
        ),
        sweeps=steps,
    )


def _draws(loop: Loop, atom: Atom) -> bool:
    if Phase.RENDER in loop.phases(atom.node) or passes_through(atom, LIBRARY) or CALLS.search(atom.text):
        return True
    return any(frame.own and DRAWS.search(bare_name(frame)) for frame in atom.stack)
