"""What an entry of the catalogue says."""

from __future__ import annotations

from dataclasses import dataclass

SEQUENCES = ("list", "tuple", "deque")


@dataclass(frozen=True, slots=True)
class Needs:
    """What an operand must be."""

    at: int | None = None
    """Its place among the operands; None for any of them."""
    container: tuple[str, ...] = ()
    length: int = 0
    """At least so many elements of the container."""
    form: str = ""
    """ "array" or "tensor": it is one, or its elements are."""
    elements: int = 0
    """At least so many numbers in all arrays or tensors together."""
    most: int | None = None
    """At most so many."""
    text: tuple[str, ...] = ()
    """Beginnings of its description, one of which it has."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An expensive kind of call or operator."""

    title: str
    advice: str
    calls: tuple[str, ...] = ()
    """Full names of what is called; one that ends in "." stands for all of a package or class."""
    operations: tuple[str, ...] = ()
    """Instructions of the interpreter, for operators."""
    through: tuple[str, ...] = ()
    """Modules of libraries, one of which is below the user's line."""
    needs: tuple[Needs, ...] = ()
    often: float = 0.0
    """At least so many calls for each environment step or update, whichever there are fewer of."""
    loop: bool = False
    """Whether a fix replaces the loop around it, and not only the call."""
    sure: bool = True
    """Whether there is a better way wherever it is seen. If not, it is reported as a hotspot: a repaired script may
    still have to do it."""
    remains: tuple[float, float, float] = (0.1, 0.02, 0.4)
    """What a fix leaves of the time: expected, least and most."""
