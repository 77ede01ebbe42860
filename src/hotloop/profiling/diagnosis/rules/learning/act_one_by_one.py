"""The policy is called once per environment instead of once for all of them.

A small network takes 40 to 100 µs for one observation and hardly more for thirty: the cost is in calling a dozen
operations, not in the arithmetic.

**Seen by.** With four or more environments in a vector environment: at least 0.8 calls for acting per environment step.
The rule claims the calls and the time between two of them. Environments that are kept in a list and stepped one by one
look like a single environment and are not covered.

**Residual.** One call in N, plus four times the counted FLOPs at the peak of one core. If the network is so large that
a batch costs N times as much, there is nothing to gain and nothing is reported.
"""

from __future__ import annotations

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.claims import busy_ns, indices, left_over, union
from hotloop.profiling.diagnosis.evidence import duration, hottest, times
from hotloop.profiling.diagnosis.finding import Cause, Causes
from hotloop.profiling.diagnosis.time_slices import ENVIRONMENT, LEARNING, Loop
from hotloop.profiling.trace.model import Node

FEWEST_ENVS = 4
FOR_EACH = 0.8
"""With this many acting calls per environment step, the policy is called separately for each environment."""
ARITHMETIC = 4.0
"""A batch of a few rows reaches about a quarter of the machine's peak on one core."""
ADVICE = """\
Stack the observations and call the policy once a vector step:
    obs = np.stack(observations)                         # [N, ...]; a vector environment gives it so
    with torch.no_grad():
        actions = policy(torch.from_numpy(obs)).argmax(1).numpy()   # one call for all N"""


def find(loop: Loop) -> Causes:
    """Find networks that are called once for each environment of a vector environment, instead of once for all."""
    num_envs = loop.num_envs
    acting = [node for node in loop.spans if _acts(loop, node) and node.calls >= FOR_EACH * loop.env_steps]
    if not loop.env_steps or num_envs < FEWEST_ENVS or not acting:
        return
    names = {node.name for node in acting}
    claimed = union(loop.below(acting), loop.where(lambda atom: _between(atom.node, names)))
    calls = sum(node.calls for node in acting)
    flops = sum(loop.counted("flops", node) for node in acting)
    peak = float(loop.machine.peak_flops_1 or loop.machine.peak_flops or 5e10)
    once_ns = busy_ns(claimed) / num_envs
    batch_ns = once_ns + ARITHMETIC * flops / peak * 1e9
    yield Cause(
        title="The policy is called for one environment at a time.",
        atoms=indices(claimed),
        residual=left_over(claimed, batch_ns, low=0.7 * once_ns / batch_ns),
        evidence=(
            f"{times(calls / loop.vector_steps)} calls for acting a vector step of {times(num_envs)} environments",
            f"a call takes {duration(sum(node.total_ns for node in acting) / calls)}, "
            f"its arithmetic {duration(flops / calls / peak * 1e9)}",
            hottest(loop, claimed),
        ),
    )


def _acts(loop: Loop, node: Node) -> bool:
    """Return whether a span is an outermost call that chooses actions, of a network or of a policy's own method."""
    if node.phase is not Phase.ACT:
        return False
    parent = loop.parent(node)
    return parent is None or not (loop.phases(parent) & (LEARNING | ENVIRONMENT | {Phase.ACT, Phase.EVALUATE}))


def _between(node: Node, names: set[str]) -> bool:
    """Return whether a gap is between two acting calls: it prepares an observation or stores an action."""
    if node.kind != "gap":
        return False
    before, _, after = node.name.strip("()").partition(" → ")
    return before in names and after in names
