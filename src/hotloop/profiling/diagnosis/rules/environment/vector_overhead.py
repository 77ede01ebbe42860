"""Sending steps to worker processes, or copying their results, costs more than the environments themselves.

Environments that take about ten microseconds per step run in processes of their own. Each step wakes a process, pickles
an action into a pipe and reads the answer from another: 210 µs of the main thread per step of CartPole, whose own work
takes 15 µs. Or a vector environment in the same process copies more than its environments compute.

**Seen by.** Worker processes that step environments. The median time of a step there, times the number of steps, is
less than half of the main thread's time in the vector environment. For copies: stacks inside a vector environment in
`deepcopy`, `concatenate` and the like, at least 200 µs per vector step and more than the environments take.

**Residual.** Per environment step, the fastest step in a process (or a third of the median, because a process that was
just woken has cold caches) plus 8 µs for the loop around it. For copies: 40 % (15 to 70 %).

**Not covered.** Environments that are expensive enough for processes: see `heavy_sync_env`.
"""

from __future__ import annotations

import re

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.claims import indices
from hotloop.profiling.diagnosis.env_processes import Steps, vector_nodes, worker_steps
from hotloop.profiling.diagnosis.evidence import duration, hottest, meeting_line, percent, times
from hotloop.profiling.diagnosis.finding import Cause, Causes, Residual, clamped
from hotloop.profiling.diagnosis.time_slices import Atom, Loop, total_ns
from hotloop.profiling.trace.model import Node

IN_PROCESS_NS = 8_000
"""What a vector environment in the same process adds to an environment's step: its loop, and writing the rows."""
COLD = 3.0
"""A process woken for one step has cold caches: steps made one after the other take a third of the median there."""
LEAST_OVERHEAD = 0.5
"""If more than this part of a vector step is not the environments' own work, processes are not worth it."""
COPIES = re.compile(r"^(_?deepcopy\w*|copy|_?concatenate\w*|_save_obs|_obs_from_buf|copy_obs_dict|_stack_obs)$")
LEAST_COPY_NS = 200_000
FEWEST_CALLS = 20
PROCESS_ADVICE = """\
Step such light environments in the learner's own process, or use one that is written for arrays:
    env = gym.vector.SyncVectorEnv([make_env] * n)      # was AsyncVectorEnv; SB3: DummyVecEnv, was SubprocVecEnv
    env = gym.make_vec("CartPole-v1", num_envs=n, vectorization_mode="vector_entry_point")   # all in one array
Processes pay from about half a millisecond a step on. Where they must stay, give each of them several
environments, so that a message carries more work."""
COPY_ADVICE = """\
Let observations be written where they are used, once:
    env = gym.vector.SyncVectorEnv([make_env] * n, copy=False)   # the caller copies into its own buffer anyway
and keep arrays out of `info`, which is copied deeply at each step by some vector environments."""


def find(loop: Loop) -> Causes:
    """Find vector environments that cost more than the environments in them."""
    steps = worker_steps(loop)
    return _processes(loop, steps) if steps else _copies(loop)


def _processes(loop: Loop, steps: Steps) -> Causes:
    inside = {each.id for node in vector_nodes(loop) for each in loop.thread.subtree(node)}
    stepping = loop.where(lambda atom: atom.node.id in inside)
    acting = loop.where(lambda atom: atom.node.id not in inside and _follows(loop, atom.node))
    vector_ns, acting_ns, env_ns = total_ns(stepping), total_ns(acting), steps.median_ns * loop.env_steps
    if not vector_ns or 1.0 - env_ns / max(vector_ns, 1.0) < LEAST_OVERHEAD:
        return
    residual = _residual(steps, vector_ns / max(loop.env_steps, 1))
    waited_ns = total_ns(atom for atom in stepping if Phase.WAIT in loop.phases(atom.node))
    warm, whole_ns = _warm(acting), vector_ns + acting_ns
    yield Cause(
        title="Sending steps to processes costs more than the environments' own work.",
        atoms=indices([*stepping, *acting]),
        residual=clamped(
            (residual.mid * vector_ns + warm * acting_ns) / whole_ns,
            (residual.low * vector_ns + 0.8 * warm * acting_ns) / whole_ns,
            (residual.high * vector_ns + acting_ns) / whole_ns,
        ),
        evidence=(
            f"an environment step takes {duration(steps.median_ns)} in its process, and "
            f"{duration(vector_ns / max(loop.env_steps, 1))} of the main thread's time",
            f"{steps.processes} processes for {times(loop.num_envs)} environments; "
            f"{percent(waited_ns / vector_ns)} of a vector step is waiting",
            f"acting between the steps takes {times(1 / warm)} times as long as it does at best" if warm else "",
            hottest(loop, stepping, 1),
        ),
        advice=PROCESS_ADVICE,
        blame=meeting_line(stepping),
    )


def _residual(steps: Steps, present_ns: float) -> Residual:
    """Predict the same steps made one after the other in the main process.

    The fastest step seen in a process is about what each takes when caches are warm.
    """
    warm_ns = max(steps.fastest_ns, steps.median_ns / COLD)
    mid, low, high = warm_ns + IN_PROCESS_NS, warm_ns / 2 + IN_PROCESS_NS / 2, steps.median_ns + 2 * IN_PROCESS_NS
    return clamped(mid / present_ns, low / present_ns, high / present_ns)


def _follows(loop: Loop, node: Node) -> bool:
    """Return whether a node runs directly after the main thread waited, with cold caches."""
    return node.phase in (Phase.ACT, Phase.OBSERVE) and (node.kind == "span" or loop.beside_env(node))


def _warm(acting: list[Atom]) -> float:
    """Return what is left of acting once the thread no longer sleeps in between: by its fastest calls."""
    nodes = {atom.node.id: atom.node for atom in acting if atom.node.kind == "span"}.values()
    nodes = [node for node in nodes if node.calls >= FEWEST_CALLS]
    whole = sum(node.total_ns for node in nodes)
    return sum(node.min_ns * node.calls for node in nodes) / whole if whole else 1.0


def _copies(loop: Loop) -> Causes:
    """Find copying inside a vector environment of this process that outweighs the environments in it."""
    nodes = {node.id: node for node in vector_nodes(loop)}
    copying = loop.where(lambda atom: atom.node.id in nodes and any(COPIES.match(f.function) for f in atom.stack))
    beneath = sum(node.total_ns - node.self_ns for node in nodes.values())
    per_step_ns = total_ns(copying) / max(loop.vector_steps, 1)
    if loop.num_envs < 2 or not beneath or total_ns(copying) < beneath or per_step_ns < LEAST_COPY_NS:
        return
    yield Cause(
        title="The vector environment spends more time on copying than its environments on stepping.",
        atoms=indices(copying),
        residual=clamped(0.4, 0.15, 0.7),
        evidence=(
            f"{duration(per_step_ns)} of copying a vector step of {times(loop.num_envs)} environments, "
            f"which take {duration(beneath / max(loop.vector_steps, 1))}",
            hottest(loop, copying, 1),
        ),
        advice=COPY_ADVICE,
        blame=meeting_line(copying),
    )
