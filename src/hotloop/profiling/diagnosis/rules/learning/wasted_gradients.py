"""Forward passes record a graph that no backward pass uses.

Networks are called with gradients enabled where no backward pass follows: for acting, for targets, for planning. Each
operation then creates a graph node, keeps its inputs and frees both soon after: 1.1 µs per node in perceptrons, LSTM
cells and transformers (0.9 to 1.4). A perceptron of three layers has 11 nodes, sixteen steps of an LSTM cell have 260.
`.detach()` comes too late: the graph is already built.

**Seen by.** One in sixteen forward passes at each place in the code is followed until a backward pass uses its graph or
it is freed unused. At least five must be followed, and nine in ten unused. A graph that is kept for a later backward
pass (REINFORCE, A2C) counts only once it is used or freed.

**Residual.** The time of the calls minus 1.1 µs per node (0.7 to 2). Memory kept for the graph is not part of the
prediction. Feed-forward networks gain 15 to 25 % of the call, recurrent ones a third.
"""

from __future__ import annotations

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.claims import bare_name, busy_ns, indices, most_time
from hotloop.profiling.diagnosis.evidence import duration, hottest, percent, times
from hotloop.profiling.diagnosis.finding import Cause, Causes, clamped
from hotloop.profiling.diagnosis.time_slices import Atom, Line, Loop
from hotloop.profiling.trace.model import Node

FEWEST_FOLLOWED = 5
"""Fewest graphs that must have been followed at a place."""
UNUSED = 0.9
"""If this part of them was freed unused, none is meant to be used."""
NODE_NS = 1_100
"""What a node of a graph costs to make, to keep and to free. Measured: 0.8 to 1.4 µs in perceptrons and LSTMs."""
ADVICE = """\
Disable gradients where they are not needed, for acting and for targets:
    with torch.no_grad():                       # or @torch.inference_mode() on act()
        actions = policy(obs).argmax(1)
    with torch.no_grad():
        target = rewards + gamma * (1 - dones) * target_network(next_obs).amax(1)
.detach() afterwards does not help: the graph has been built by then."""


def find(loop: Loop) -> Causes:
    """Find forward passes whose graphs are freed unused."""
    nodes = [node for node in loop.spans if _wasted(node)]
    claimed = loop.below(nodes)
    if not busy_ns(claimed):
        return
    largest = sorted(nodes, key=lambda node: -node.total_ns)[:3]
    saved = sum(node.calls * _graph_size(node) * NODE_NS for node in nodes) / busy_ns(claimed)
    yield Cause(
        title="Forward passes record gradients that no backward uses.",
        atoms=indices(claimed),
        residual=clamped(1 - saved, 1 - 1.8 * saved, 1 - 0.6 * saved),
        evidence=(*map(_followed, largest), hottest(loop, claimed)),
        blame=_caller(claimed),
    )


def _wasted(node: Node) -> bool:
    unused, used = node.counts.get("graphs_unused", 0), node.counts.get("graphs_used", 0)
    return unused + used >= FEWEST_FOLLOWED and unused >= UNUSED * (unused + used)


def _graph_size(node: Node) -> float:
    return node.counts.get("graph_nodes_unused", 0) / max(node.counts.get("graphs_unused", 0), 1)


def _followed(node: Node) -> str:
    unused = node.counts.get("graphs_unused", 0)
    followed = unused + node.counts.get("graphs_used", 0)
    what = "acting" if node.phase is Phase.ACT else "a forward pass"
    return (
        f"{node.name}, {what}: {percent(unused / followed)} of {followed} graphs followed up were freed unused, "
        f"{times(_graph_size(node))} nodes each; a call takes {duration(node.mean_ns)}"
    )


def _caller(claimed: list[Atom]) -> Line | None:
    """Return the own line that calls the network: the place for no_grad, rather than a layer inside of it."""
    callers: list[tuple[Line, float]] = []
    for atom in claimed:
        outer = next((frame for frame in atom.stack if frame.own and bare_name(frame) != "forward"), None)
        if outer is not None:
            callers.append(((outer.file, outer.line), atom.ns))
    return most_time(callers)
