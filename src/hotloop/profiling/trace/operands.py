"""What an instruction works on: lengths, types and shapes, read from the recorder's descriptions."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass

ITEM_BYTES = {"bool": 1, "object": 8}
_SEQUENCE = re.compile(r"(list|tuple|set|frozenset|deque) of (\d+) × (.*)", re.DOTALL)
_BLOCK = re.compile(r"(array|tensor) (\S+) \[([\d, ]*)\](.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Operand:
    """An object that an instruction worked on."""

    text: str
    """As described: "list of 256 × array float32 [4, 96, 96]"."""
    container: str = ""
    """ "list", "tuple" and so on; "" if it is none."""
    length: int = 1
    """Elements of the container, and of containers in it."""
    form: str = ""
    """ "array" or "tensor", of the object or of a container's elements; "" for anything else."""
    dtype: str = ""
    shape: tuple[int, ...] = ()
    gradient: bool = False
    """Whether it is a tensor that gradients flow to."""
    device: str = "cpu"
    strided: bool = False

    @property
    def elements(self) -> int:
        """Numbers in all arrays or tensors together."""
        return self.length * math.prod(self.shape) if self.form else 0

    @property
    def nbytes(self) -> int:
        """Size of all arrays or tensors together."""
        return self.elements * item_bytes(self.dtype)


def item_bytes(dtype: str) -> int:
    """Return the size of a number of this type; 4 if it is unknown."""
    if dtype in ITEM_BYTES:
        return ITEM_BYTES[dtype]
    bits = re.search(r"\d+", dtype)  # the first: "float8_e4m3fn"
    return max(int(bits.group()[:3]) // 8, 1) if bits else 4


@functools.lru_cache(maxsize=10_000)
def parse(text: str) -> Operand:
    """Read a description; one that is not understood is an object without shape."""
    container, length, rest = "", 1, text
    while match := _SEQUENCE.fullmatch(rest):
        container, length, rest = container or match[1], length * int(match[2][:9]), match[3]
    block = _BLOCK.fullmatch(rest)
    if block is None:
        return Operand(text, container, length)
    try:
        shape = tuple(int(each[:12]) for each in block[3].split(",") if each.strip())
    except ValueError:
        shape = ()
    facts = block[4]
    where = re.search(r" on (\S+)", facts)
    return Operand(
        text, container, length, block[1], block[2], shape, " with gradient" in facts, where[1] if where else "cpu",
        " strided" in facts,
    )  # fmt: skip
