"""The state of the hooks during one recording: created when it starts, dropped when it ends.

Hooks receive it as an argument. The recorder reads it and writes its facts into the run's files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hotloop.profiling.recorder.hooks.torch.dropped_gradients import DroppedGradients
from hotloop.profiling.recorder.hooks.torch.library import Library
from hotloop.profiling.recorder.hooks.torch.modules import ModuleCosts, Seen
from hotloop.profiling.recorder.hooks.torch.optimisers import Lead, PlainOptimisers
from hotloop.profiling.recorder.hooks.torch.unused_graphs import UnusedGraphs
from hotloop.profiling.recorder.hooks.wrappers import Failures, Here
from hotloop.profiling.recorder.messages import Message
from hotloop.profiling.recorder.printed_timings.listen import PrintedText, Send

if TYPE_CHECKING:
    from hotloop.profiling.recorder.deep.layers import Layers


class HookState:
    """What the hooks of one recording share.

    Args:
        depth: Levels of nested torch module calls to time; 1 is the outermost only.

    Raises:
        ValueError: If `depth` is negative.
    """

    def __init__(self, depth: int = 1) -> None:
        self.levels = bytearray(1)
        """`depth`, where the wrapper of module calls reads it."""
        self.torch = Library()
        self.here = Here()
        self.quiet: set[int] = set()
        """Threads whose host syncs are a library's own and are not counted. Nearly always empty."""
        self.calls_are_seen = False
        """Whether each call of a function is followed by `sys.setprofile`, which does not see those made in C."""
        self.layers: Layers | None = None
        """Times the layers of modules, if requested."""
        self.wrapper_ns: dict[str, float] = {}
        """What each kind of wrapper adds to a call around its span, by its name in the recorder's state file."""
        self.module_costs = ModuleCosts()
        self.recorder: Send = lambda message: None
        """Takes messages for the recorder."""
        self.begin(depth)

    @property
    def depth(self) -> int:
        """Levels of nested torch module calls to time."""
        return self.levels[0]

    @depth.setter
    def depth(self, levels: int) -> None:
        self.levels[0] = min(levels, 127)

    def send(self, message: Message) -> None:
        """Send a message to the recorder."""
        self.recorder(message)

    def begin(self, depth: int) -> None:
        """Clear the facts of the last recording: a forked process keeps its parent's hooks."""
        if depth < 0:
            raise ValueError(f"modules_depth is {depth}: give 0 for no module calls, 1 for the outermost")
        self.depth = depth
        self.failures = Failures()
        self.printed = PrintedText(self.send)
        self.lead = Lead()
        self.plain_optimisers = PlainOptimisers(self.failures)
        self.gradients = DroppedGradients(self.failures)
        self.graphs = UnusedGraphs(self.torch, self.failures)
        self.modules: dict[int, Seen] = {}
        """What is known of each module, by its id."""
        self.threads_set_at: tuple[str, int] | None = None
        """File and line that last set torch's number of threads."""
