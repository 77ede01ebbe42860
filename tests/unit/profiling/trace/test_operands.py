"""Descriptions of operands are read back; text that is none is harmless."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotloop.profiling.trace.operands import Operand, item_bytes, parse


@pytest.mark.parametrize(
    ("text", "operand", "elements", "nbytes"),
    [
        ("int", Operand("int"), 0, 0),
        ("empty list", Operand("empty list"), 0, 0),
        ("list of 256 × int", Operand("list of 256 × int", "list", 256), 0, 0),
        ("array float64 []", Operand("array float64 []", form="array", dtype="float64"), 1, 8),
        ("array bool [3] strided", Operand("array bool [3] strided", "", 1, "array", "bool", (3,), strided=True), 3, 3),
        (
            "list of 256 × array float32 [4, 96, 96]",
            Operand("list of 256 × array float32 [4, 96, 96]", "list", 256, "array", "float32", (4, 96, 96)),
            9437184,
            37748736,
        ),
        (
            "tensor bfloat16 [2, 3] strided on cuda:0 with gradient",
            Operand(
                "tensor bfloat16 [2, 3] strided on cuda:0 with gradient",
                "", 1, "tensor", "bfloat16", (2, 3), True, "cuda:0", True,
            ),
            6,
            12,
        ),
        (
            "tuple of 2 × list of 3 × tensor int64 [5]",
            Operand("tuple of 2 × list of 3 × tensor int64 [5]", "tuple", 6, "tensor", "int64", (5,)),
            30,
            240,
        ),
        ("a.Rows (list)", Operand("a.Rows (list)"), 0, 0),
    ],
)  # fmt: skip
def test_descriptions(text, operand, elements, nbytes):
    found = parse(text)
    assert found == operand
    assert (found.elements, found.nbytes) == (elements, nbytes)


@pytest.mark.parametrize(
    ("dtype", "nbytes"),
    [
        ("bool", 1), ("uint8", 1), ("int64", 8), ("float16", 2), ("bfloat16", 2), ("complex64", 8), ("complex128", 16),
        ("float8_e4m3fn", 1), ("float8_e5m2", 1), ("datetime64[ns]", 8), ("object", 8), ("str96", 12), ("void96", 12),
        ("strange", 4), ("x" + "9" * 500, 124),
    ],
)  # fmt: skip
def test_sizes_of_numbers(dtype, nbytes):
    """Regression: 8-bit floats counted as four bytes, and times and objects, too."""
    assert item_bytes(dtype) == nbytes


FORMS = st.sampled_from(["array", "tensor"])
SHAPES = st.lists(st.integers(0, 10**6), max_size=5)


@given(
    FORMS, st.sampled_from(["float32", "uint8"]), SHAPES, st.booleans(), st.booleans(), st.lists(st.integers(1, 999))
)
def test_what_is_written_is_read(form, dtype, shape, strided, gradient, lengths):
    ends = f"{' strided' if strided else ''}{' with gradient' if gradient else ''}"
    text = "".join(f"list of {n} × " for n in lengths) + f"{form} {dtype} {shape}{ends}"
    found = parse(text)
    length = 1
    for n in lengths:
        length *= n
    expected = Operand(text, "list" if lengths else "", length, form, dtype, tuple(shape), gradient, "cpu", strided)
    assert found == expected


PIECES = [
    "list of 9 × ",
    "list of ",
    "array ",
    "tensor float32 ",
    "[1, 2]",
    "[",
    ",",
    "9" * 400,
    " on ",
    "×",
    "\n",
    "٣",
]


@given(st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=12).map("".join)))
def test_any_text_is_an_operand(text):
    found = parse(text)
    assert found.text == text
    assert found.nbytes >= 0
