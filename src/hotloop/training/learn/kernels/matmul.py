"""A matrix product for small matrices, where the overhead of a BLAS call would be noticeable.

The networks here are so small that a product takes 3 to 40 µs. A BLAS starts threads for some of them, needs a second
pass for bias and ReLU, and has a global thread setting. This product is LLVM vector code inside the calling kernel: a
block of 8 rows and 32 columns stays in registers over the whole depth, and bias and ReLU are applied there. It runs on
one core, works with any vector width, and gives the same bits each time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

F32 = NDArray[np.float32]

ROWS = 8
LANES = 16
COLUMNS = 2 * LANES
"""Size of the block kept in registers: 16 of AVX-512's 32. LLVM splits the vectors for narrower machines."""

_FLOAT = ir.FloatType()
_VECTOR = ir.VectorType(_FLOAT, LANES)


class _Block:
    """Generates the code of one block, `rows` × COLUMNS; a mask handles blocks with fewer columns.

    Values of LLVM have no Python types, so they are not annotated.
    """

    def __init__(self, context, builder, signature, args) -> None:
        self.context, self.builder = context, builder
        self.arrays = [context.make_array(signature.args[n])(context, builder, args[n]) for n in range(4)]
        self.kinds = signature.args[:4]
        self.floor = self.splat(args[4])
        self.row, self.column = cgutils.unpack_tuple(builder, args[5], 2)

    def splat(self, scalar):
        """Fill a vector with one number."""
        one = self.builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), None)
        return self.builder.shuffle_vector(one, ir.Constant(_VECTOR, ir.Undefined), zeros)

    def address(self, array: int, *index):
        """Pointer to an element, using the array's strides."""
        kind, struct = self.kinds[array], self.arrays[array]
        shape = cgutils.unpack_tuple(self.builder, struct.shape, kind.ndim)
        strides = cgutils.unpack_tuple(self.builder, struct.strides, kind.ndim)
        return cgutils.get_item_pointer2(
            self.context, self.builder, struct.data, shape, strides, "A", index, wraparound=False
        )

    def lanes(self, half: int):
        """First column of one half of the block, and the mask of its lanes inside the matrix."""
        builder = self.builder
        intp = self.column.type
        begin = builder.add(self.column, ir.Constant(intp, half * LANES))
        left = builder.sub(cgutils.unpack_tuple(builder, self.arrays[0].shape, 2)[1], begin)
        lane = ir.Constant(ir.VectorType(intp, LANES), list(range(LANES)))
        spread = builder.insert_element(ir.Constant(lane.type, ir.Undefined), left, ir.Constant(ir.IntType(32), 0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), None)
        spread = builder.shuffle_vector(spread, ir.Constant(lane.type, ir.Undefined), zeros)
        return begin, builder.icmp_signed("<", lane, spread)

    def load(self, pointer, mask):
        """Load a vector; lanes outside the mask are zero, and their memory is not read."""
        pointer = self.builder.bitcast(pointer, _VECTOR.as_pointer())
        if mask is None:
            return self.builder.load(pointer, align=4)
        zero = ir.Constant(_VECTOR, None)
        align = ir.Constant(ir.IntType(32), 4)
        kind = ir.FunctionType(_VECTOR, [pointer.type, align.type, mask.type, _VECTOR])
        fn = cgutils.get_or_insert_function(self.builder.module, kind, f"llvm.masked.load.v{LANES}f32.p0")
        return self.builder.call(fn, [pointer, align, mask, zero])

    def store(self, value, pointer, mask) -> None:
        """Store a vector, or only the lanes in the mask."""
        pointer = self.builder.bitcast(pointer, _VECTOR.as_pointer())
        if mask is None:
            self.builder.store(value, pointer, align=4)
            return
        align = ir.Constant(ir.IntType(32), 4)
        kind = ir.FunctionType(ir.VoidType(), [_VECTOR, pointer.type, align.type, mask.type])
        fn = cgutils.get_or_insert_function(self.builder.module, kind, f"llvm.masked.store.v{LANES}f32.p0")
        self.builder.call(fn, [value, pointer, align, mask])

    def emit(self, rows: int, masked: bool) -> None:
        """Sum over the depth in registers, apply the floor, and store."""
        builder, intp = self.builder, self.row.type
        halves = [self.lanes(half) for half in range(COLUMNS // LANES)]
        halves = [(begin, mask if masked else None) for begin, mask in halves]
        at = [builder.add(self.row, ir.Constant(intp, r)) for r in range(rows)]
        sums = []
        for r in range(rows):
            bias = self.splat(builder.load(self.address(3, at[r])))
            for _ in halves:
                sums.append(cgutils.alloca_once_value(builder, bias))
        depth = cgutils.unpack_tuple(builder, self.arrays[1].shape, 2)[1]
        fma = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_VECTOR, [_VECTOR] * 3), f"llvm.fma.v{LANES}f32"
        )
        with cgutils.for_range(builder, depth) as loop:
            right = [self.load(self.address(2, loop.index, begin), mask) for begin, mask in halves]
            for r in range(rows):
                left = self.splat(builder.load(self.address(1, at[r], loop.index)))
                for h, vector in enumerate(right):
                    cell = sums[r * len(halves) + h]
                    builder.store(builder.call(fma, [left, vector, builder.load(cell)]), cell)
        for r in range(rows):
            for h, (begin, mask) in enumerate(halves):
                value = builder.load(sums[r * len(halves) + h])
                # NaN is not below the floor in an ordered comparison, so it is kept, as in torch's ReLU.
                value = builder.select(builder.fcmp_ordered("<", value, self.floor), self.floor, value)
                self.store(value, self.address(0, at[r], begin), mask)


def _block_of(rows: int, masked: bool) -> Any:
    """Make the intrinsic that fills one block of `out`. It takes the arguments of `matmul` and the block's corner."""

    def block(typing, out, a, b, bias, floor, corner):  # noqa: PLR0913
        def generate(context, builder, signature, args):
            _Block(context, builder, signature, args).emit(rows, masked)
            return context.get_dummy_value()

        return types.void(out, a, b, bias, floor, corner), generate

    return intrinsic(block)


_whole = _block_of(ROWS, masked=False)
_whole_row = _block_of(1, masked=False)
_edge = _block_of(ROWS, masked=True)
_edge_row = _block_of(1, masked=True)


@njit(nogil=True, error_model="numpy")
def matmul(out: F32, a: F32, b: F32, bias: F32, floor: np.float32) -> None:
    """Compute `out = max(a @ b + bias[:, None], floor)`.

    Args:
        out: `[M, N]`, rows contiguous; overwritten.
        a: `[M, K]`, any strides: pass `x.T` for a transposed product.
        b: `[K, N]`, rows contiguous.
        bias: `[M]`, added to each column.
        floor: 0 for ReLU, −inf for none.
    """
    rows, columns = out.shape
    for j in range(0, columns, COLUMNS):
        whole = j + COLUMNS <= columns
        i = 0
        while i + ROWS <= rows:
            if whole:
                _whole(out, a, b, bias, floor, (i, j))
            else:
                _edge(out, a, b, bias, floor, (i, j))
            i += ROWS
        while i < rows:
            if whole:
                _whole_row(out, a, b, bias, floor, (i, j))
            else:
                _edge_row(out, a, b, bias, floor, (i, j))
            i += 1
