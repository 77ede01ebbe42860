"""Networks work in double precision: twice the bytes, and half the arithmetic speed.

NumPy makes float64 arrays by default; one of them, or `torch.set_default_dtype`, turns all of a network into float64.

**Seen by.** A network that is called with float64 tensors while the main thread is followed.

**Residual.** 0.45 to 0.9 of the networks' time: half of large products, hardly less of small operations.
"""

from __future__ import annotations

import ast

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.claims import indices
from hotloop.profiling.diagnosis.evidence import hottest
from hotloop.profiling.diagnosis.finding import Cause, Causes, Residual
from hotloop.profiling.diagnosis.time_slices import Line, Loop
from hotloop.profiling.trace.observed import operands_of

NETWORK = frozenset({Phase.ACT, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMISE, Phase.SYNC_WEIGHTS})
SETTINGS = ("torch.set_default_dtype", "torch.set_default_tensor_type")
ADVICE = """\
Use float32: remove torch.set_default_dtype(torch.float64) and .double(), and convert observations once:
    obs = torch.as_tensor(obs, dtype=torch.float32)"""


def find(loop: Loop) -> Causes:
    """Find networks in double precision."""
    networks = {node.name for node in loop.spans if node.phase in (Phase.ACT, Phase.FORWARD)}
    calls = [each for each in loop.trace.observed.record.places if each.callee.rpartition(".")[2] in networks]
    doubled = [each for each in calls if any(x.form == "tensor" and x.dtype == "float64" for x in operands_of(each))]
    if not doubled or len(doubled) < len(calls) / 2:
        return
    atoms = loop.where(lambda atom: atom.node.kind == "span" and atom.node.phase in NETWORK)
    first = doubled[0]
    yield Cause(
        title="Networks work in double precision (float64).",
        atoms=indices(atoms),
        residual=Residual(0.6, 0.45, 0.9),
        evidence=(f"{first.callee}({', '.join(first.operands)})", hottest(loop, atoms)),
        blame=_setting(loop) or (first.file, first.line),
        general=True,
    )


def _setting(loop: Loop) -> Line | None:
    """Return where the precision is set, if that is one call."""
    for file, source in sorted(loop.trace.sources.items()):
        for node in ast.walk(source.tree) if source.tree is not None else ():
            if isinstance(node, ast.Call) and source.name_of(node.func) in SETTINGS:
                return file, node.lineno
    return None
