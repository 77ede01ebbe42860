"""Compiled loops that gather frames, each on as many threads as call it: they share the rows out among themselves.

The frames of a batch lie anywhere in a memory far larger than the caches. A processor fetches ahead only within a page
of 4 kB, so at every page it would wait for memory; here it is told of the next page while it copies one, be that of the
same frame or of the next. A batch's memory comes as an address: whether somebody holds it is seen by its references.
"""

# The first parameter of an intrinsic is numba's; callers do not give it.
# pyright: reportCallIssue=false, reportPrivateImportUsage=false

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from hotloop.replay.kernels import U64

ROWS = 16
"""Frames that a thread takes at once."""
PAGE, LINE, LINES_AHEAD = 4096, 64, 8
"""After the first lines of a page the processor goes on by itself."""


@intrinsic
def _take(_context, counter, number):
    """`counter[0] += number` as one operation, whatever other threads do; returns what it was."""

    def code(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.atomic_rmw("add", array.data, arguments[1], "monotonic")

    return types.int64(counter, types.int64), code


@intrinsic
def _fetch(_context, address):
    """Begin to bring a line of memory into the caches."""

    def code(context, builder, signature, arguments):
        pointer, number = cgutils.voidptr_t, ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        to_read, keep, data = (number(each) for each in (0, 3, 1))
        builder.call(fetch, [builder.inttoptr(arguments[0], pointer), to_read, keep, data])
        return context.get_dummy_value()

    return types.void(types.int64), code


@intrinsic
def _copy(_context, into, source, size):
    """Copy bytes from one address to another."""

    def code(context, builder, signature, arguments):
        to, of = (builder.inttoptr(each, cgutils.voidptr_t) for each in arguments[:2])
        cgutils.raw_memcpy(builder, to, of, arguments[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), code


@intrinsic
def _pointer(_context, address):
    """An address as a pointer."""

    def code(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), code


@njit(cache=True, nogil=True)
def _fetch_page(address: int) -> None:
    for line in range(LINES_AHEAD):
        _fetch(address + LINE * line)


@njit(cache=True, nogil=True)
def gather_rows(frames, places, into: int, taken) -> None:
    """Copy frames: uint8 [R, P] at the address `into`, from `places` int64 [R]. Rows before `taken[0]` are others'."""
    size, rows, first = frames.shape[1], places.shape[0], frames.ctypes.data
    begin = _take(taken, ROWS)
    while begin < rows:
        for i in range(begin, min(begin + ROWS, rows)):
            source, after = first + places[i] * size, first + places[min(i + 1, rows - 1)] * size
            for at in range(0, size, PAGE):
                _fetch_page(source + at + PAGE if at + PAGE < size else after)
                _copy(into + i * size + at, source + at, min(PAGE, size - at))
        begin = _take(taken, ROWS)


@njit(cache=True, nogil=True)
def gather_scaled(frames, places, scale, into: int, taken) -> None:
    """Copy frames as floats times a scale: float32 [R, P] at the address `into`; else as `gather_rows`."""
    size, rows, first = frames.shape[1], places.shape[0], frames.ctypes.data
    out = carray(_pointer(into), (rows, size), np.float32)
    begin = _take(taken, ROWS)
    while begin < rows:
        for i in range(begin, min(begin + ROWS, rows)):
            source, row, after = U64(places[i]), U64(i), first + places[min(i + 1, rows - 1)] * size
            for at in range(0, size, PAGE):
                _fetch_page(first + places[i] * size + at + PAGE if at + PAGE < size else after)
                for p in range(at, min(at + PAGE, size)):
                    out[row, U64(p)] = np.float32(frames[source, U64(p)]) * scale
        begin = _take(taken, ROWS)
