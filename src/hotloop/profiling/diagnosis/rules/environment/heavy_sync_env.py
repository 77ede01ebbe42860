"""Expensive environments are stepped one after the other while cores are idle.

`make_vec_env` of Stable-Baselines3 and `SyncVectorEnv` do this by default.

**Seen by.** Two or more single environments inside a vector environment in the main thread, at least 300 µs of CPU time
per step, and at least 0.7 cores that no process of the run uses. Vector environments that work on whole arrays are not
covered.

**Residual.** The work divided by the number of processes that get a core, plus 10 % because a vector step ends with its
slowest environment, plus 60 µs of messages per step. Rules that make the environment itself faster take precedence.
"""

from __future__ import annotations

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.claims import busy_ns, indices
from hotloop.profiling.diagnosis.env_processes import idle_cores, stepped_from, vector_nodes, worker_steps
from hotloop.profiling.diagnosis.evidence import duration, hottest, times
from hotloop.profiling.diagnosis.finding import Cause, Causes, clamped
from hotloop.profiling.diagnosis.time_slices import Loop
from hotloop.profiling.trace.model import Node

HEAVY_NS = 300_000
"""Environments with longer steps gain from processes: it is several times the cost of a message there and back."""
MESSAGE_NS = 60_000
"""What sending an action and receiving an observation costs the main thread, for each environment."""
UNEVEN = 1.1
"""A vector step ends with its slowest environment."""
LEAST_IDLE = 0.7
"""How much of a core must be free to count as one more."""
ADVICE = """\
Give each environment a process, because cores are idle:
    env = make_vec_env(make_env, n_envs=n, vec_env_cls=SubprocVecEnv)   # SB3; the default is DummyVecEnv
    env = gym.vector.AsyncVectorEnv([make_env] * n)                     # Gymnasium; was SyncVectorEnv
Keep numpy and torch at one thread in the workers (OMP_NUM_THREADS=1), guard the script by
`if __name__ == "__main__":`, and use as many environments as cores, or a multiple of it."""


def find(loop: Loop) -> Causes:
    """Find a vector environment that steps heavy environments in the main thread of a machine with idle cores."""
    inside = [each for node in vector_nodes(loop) for each in _environments(loop, node)]
    if not inside or worker_steps(loop) is not None:
        return
    claimed = loop.of_nodes(inside)
    per_step_ns = busy_ns(claimed) / max(loop.env_steps, 1)
    idle = idle_cores(loop)
    workers = int(min(loop.num_envs + 0.5, idle + 2.0 - LEAST_IDLE))
    if per_step_ns < HEAVY_NS or workers < 2:
        return
    ideal = 1.0 / workers
    message = MESSAGE_NS / per_step_ns
    yield Cause(
        title=f"{times(loop.num_envs)} heavy environments are stepped one after the other while cores are idle.",
        atoms=indices(claimed),
        residual=clamped(UNEVEN * ideal + message, ideal, 1.5 * ideal + 2 * message),
        evidence=(
            f"an environment step takes {duration(per_step_ns)} of processor time, a message to a process and "
            f"back about {duration(2 * MESSAGE_NS)}",
            f"{idle:.1f} of {loop.machine.cores} cores are idle; the gain is for {workers} processes",
            hottest(loop, claimed, 2),
        ),
        general=True,
        blame=stepped_from(claimed),
    )


def _environments(loop: Loop, vector: Node) -> list[Node]:
    """Return the nodes of single environments in a vector environment; none if it works on whole arrays."""
    found: list[Node] = []
    waiting = list(loop.thread.children.get(vector.id, ()))
    while waiting:
        node = waiting.pop()
        if node.kind == "span" and node.phase is Phase.ENV and ".step_" not in node.name:
            found += loop.thread.subtree(node)
        else:
            waiting += loop.thread.children.get(node.id, ())
    return found
