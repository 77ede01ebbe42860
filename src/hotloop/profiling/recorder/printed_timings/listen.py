"""Finds the timings that a script prints about itself, and sends them to the recorder to be parsed (`collect`)."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from hotloop.profiling.recorder.messages import Message
from hotloop.profiling.recorder.printed_timings.parse import HINT

if TYPE_CHECKING:
    from torch import nn

MOST_LAYERS = 1_000
LONGEST_TEXT = 4_000

Place = tuple[str, int, str]
"""File, line and function."""
Send = Callable[[Message], object]


class PrintedText:
    """Picks out the printed texts that have a timing."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._follows = False
        self.layers = LayerFlops(send)

    def wants(self, text: str) -> bool:
        """Return whether to send a text: it has a timing, or is the first after one and may be a heading."""
        if len(text) > LONGEST_TEXT:
            return False
        timed = HINT.search(text) is not None
        wanted = timed or self._follows
        self._follows = timed
        return wanted

    def send(self, thread: int, text: str, place: Place) -> None:
        """Send a text."""
        self._send({"is": "printed", "thread": thread, "text": text, "place": place})


class LayerFlops:
    """The arithmetic of the layers that were called, to check printed timings against."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._known: dict[tuple[str, str, str], int] = {}
        self._owners: dict[int, tuple[weakref.ref[nn.Module], str, str]] = {}
        """Id of a layer to the layer, its owner's class, and its name there."""

    def note(self, module: nn.Module, pairs: Iterable[tuple[nn.Module, int]]) -> None:
        """Keep the arithmetic of the layers that a call of a module went through.

        Args:
            module: The module that was called.
            pairs: Each module in it that was called and its FLOPs, 0 if it is not a layer.
        """
        span = type(module).__name__
        self._name_layers(module, span)
        for layer, flops in pairs:
            ref, owner, name = self._owners.get(id(layer), (None, span, ""))
            if ref is None or ref() is not layer:
                owner, name = span, ""
            key = (span, owner, name)
            known = self._known.get(key)
            if not flops or (known is None and len(self._known) >= MOST_LAYERS):
                continue
            # The smallest call counts, because a printed time does not say which call it belongs to.
            if known is None or flops < known:
                self._known[key] = flops
                is_convolution = hasattr(layer, "kernel_size")
                work = {"span": span, "module": owner, "name": name, "convolution": is_convolution, "flops": flops}
                self._send({"is": "layer", "work": work})

    def _name_layers(self, module: nn.Module, owner: str) -> None:
        """Remember the names of a module's layers; some may be called on their own later, in another thread."""
        for name, layer in module.named_modules():
            known = self._owners.get(id(layer))
            if name and (known is None or known[0]() is not layer) and len(self._owners) < MOST_LAYERS:
                self._owners[id(layer)] = (weakref.ref(layer), owner, name)
