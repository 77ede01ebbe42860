"""Objects are described by types, lengths and shapes: no value is read, and no code of the script runs."""

from __future__ import annotations

import collections
import functools
import json
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.overrides import TorchFunctionMode

from hotloop.profiling.recorder.messages import Message
from hotloop.profiling.recorder.operand_facts import Describer, describe, library_base, name_of_callee
from hotloop.profiling.trace.operands import Operand, parse

RNG = np.random.default_rng(0)
DTYPES = ("bool", "uint8", "int16", "int64", "float16", "float32", "float64", "complex128")


class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Rows(list):
    pass


class Plain:
    pass


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "int"),
        (None, "NoneType"),
        (1.5, "float"),
        ("secret", "str of 6"),
        (b"abc", "bytes of 3"),
        (bytearray(4), "bytearray of 4"),
        ([], "empty list"),
        ((), "empty tuple"),
        ({}, "dict of 0"),
        ({"a": 1}, "dict of 1"),
        ([1, 2, 3], "list of 3 × int"),
        ({1}, "set of 1 × int"),
        ((1, "a"), "tuple of 2 × mixed"),
        ([1] * 8 + ["a"], "list of 9 × int"),
        (collections.deque([(1, 2)]), "deque of 1 × tuple of 2 × int"),
        ([[[1]]], "list of 1 × list of 1 × list"),
        (np.float32(1), "numpy.float32"),
        (np.zeros((2, 3), np.float32), "array float32 [2, 3]"),
        (np.zeros(()), "array float64 []"),
        (np.zeros((2, 3)).T, "array float64 [3, 2] strided"),
        ([np.zeros(4, np.uint8)] * 5, "list of 5 × array uint8 [4]"),
        (np.array(["abc"]), "array str96 [1]"),
        (np.zeros(2, [("password", "f4"), ("y", "i8")]), "array void96 [2]"),
        (torch.zeros(2, 3), "tensor float32 [2, 3]"),
        (torch.zeros(2, 3).T, "tensor float32 [3, 2] strided"),
        (torch.zeros(2, requires_grad=True), "tensor float32 [2] with gradient"),
        (torch.zeros(2, dtype=torch.bfloat16, device="meta"), "tensor bfloat16 [2] on meta"),
        (torch.nn.Parameter(torch.zeros(2)), "tensor float32 [2] with gradient"),
        (torch.zeros(2, 2).to_sparse(), "tensor float32 [2, 2]"),
        (Plain(), f"{__name__}.Plain"),
        (Rows([1]), f"{__name__}.Rows (list)"),
        (Net(), f"{__name__}.Net (torch.nn.modules.module.Module)"),
    ],
)
def test_descriptions(value, text):
    assert describe(value) == text


@pytest.mark.parametrize(
    ("called", "name"),
    [
        (print, "print"),
        (int, "int"),
        ([].append, "list.append"),
        (list.append, "list.append"),
        ([].__len__, "list.__len__"),
        (dict.fromkeys, "dict.fromkeys"),
        (json.dumps, "json.dumps"),
        (np.stack, "numpy.stack"),
        (np.array, "numpy.array"),
        (np.linalg.norm, "numpy.linalg.norm"),
        (np.add, "numpy.add"),
        (np.zeros(1).sum, "numpy.ndarray.sum"),
        (np.float32, "numpy.float32"),
        (RNG.random, "numpy.random._generator.Generator.random"),
        (torch.stack, "torch.stack"),
        (torch.zeros(1).sum, "torch.Tensor.sum"),
        (torch.Tensor.add_, "torch.Tensor.add_"),
        (F.relu, "torch.nn.functional.relu"),
        (torch.nn.Linear(1, 1), "torch.nn.modules.linear.Linear"),
        (Net(), f"{__name__}.Net"),
        (Net().forward, f"{__name__}.Net.forward"),
        (functools.partial(functools.partial(np.stack), axis=0), "numpy.stack"),
        (functools.lru_cache(json.dumps), "json.dumps"),
        (Plain, f"{__name__}.Plain"),
    ],
)
def test_callees_have_their_full_name(called, name):
    assert name_of_callee(called) == name


def test_wrappers_of_hooks_are_looked_through():
    from hotloop.profiling.recorder.hooks.wrappers import IN_C

    if not IN_C:
        pytest.skip("the C extension is not built")
    from hotloop.spans.registry import span

    wrapped = IN_C[0](json.dumps, span("operands.test"))
    assert name_of_callee(wrapped) == "json.dumps"


@st.composite
def arrays(draw: st.DrawFn) -> tuple[np.ndarray | torch.Tensor, Operand]:
    dtype, shape = draw(st.sampled_from(DTYPES)), tuple(draw(st.lists(st.integers(0, 3), max_size=4)))
    array = np.zeros(shape, dtype)
    if draw(st.booleans()):
        return array, Operand(describe(array), "", 1, "array", dtype, shape)
    gradient = dtype.startswith("float") and draw(st.booleans())
    tensor = torch.from_numpy(array).requires_grad_(gradient)
    return tensor, Operand(describe(tensor), "", 1, "tensor", dtype, shape, gradient)


@given(arrays(), st.sampled_from([list, tuple, collections.deque]), st.integers(1, 12))
def test_a_description_is_read_back(given_array, container, n):
    value, expected = given_array
    assert parse(describe(value)) == expected
    many = parse(describe(container([value] * n)))
    assert (many.container, many.length, many.elements) == (container.__name__, n, n * expected.elements)
    assert (many.dtype, many.shape, many.gradient) == (expected.dtype, expected.shape, expected.gradient)
    assert expected.nbytes == (value.nbytes if isinstance(value, np.ndarray) else value.numel() * value.element_size())


RAN: list[str] = []


def refuse(*_args: object, **_kwargs: object) -> Any:
    RAN.append("code of the script")
    raise ValueError


@pytest.fixture(autouse=True)
def nothing_of_the_script_runs():
    RAN.clear()
    yield
    assert RAN == []


class HostileMeta(type):
    __hash__ = __eq__ = __instancecheck__ = __subclasscheck__ = __getattribute__ = __repr__ = refuse  # pyright: ignore


def hostile(base: type = object, meta: type = HostileMeta) -> type:
    """A class whose every special method fails, with the names of a class that would be looked into."""
    names = (
        "__getattribute__", "__getattr__", "__len__", "__iter__", "__hash__", "__eq__", "__repr__", "__str__",
        "__bool__", "__get__", "__array_interface__", "__torch_function__", "__array_function__", "__index__",
        "__call__",
    )  # fmt: skip
    body: dict[str, object] = dict.fromkeys(names, refuse)
    body |= {name: property(refuse) for name in ("__class__", "__dict__", "shape", "dtype", "flags", "func", "fn")}
    return type.__new__(meta, "ndarray", (base,), body | {"__module__": "numpy", "__qualname__": "ndarray"})


@pytest.mark.parametrize("base", [object, list, dict, str, functools.partial])
def test_no_code_of_the_script_runs(base):
    cls = hostile(base)
    value = base.__new__(cls, *[print] * (base is functools.partial))
    for each in (value, cls):
        describe(each)
        describe([each] * 2)
        name_of_callee(each)
    library_base(cls)


def test_a_subclass_of_tensors_is_not_asked():
    class Mine(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return refuse()

    with torch._C.DisableTorchFunction():
        mine = torch.zeros(2).as_subclass(Mine)
    assert describe(mine).endswith("Mine (torch.Tensor)")


def test_a_mode_of_torch_does_not_see_it():
    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return refuse()

    tensor = torch.zeros(2)
    with Mode():
        text = describe(tensor)
    assert text == "tensor float32 [2]"


def test_hostile_names():
    class Text(str):
        __format__ = __str__ = __eq__ = __hash__ = refuse  # pyright: ignore

    class C:
        def __call__(self) -> None: ...

    def f() -> None: ...

    C.__module__ = Text("a")
    f.__module__ = object.__new__(hostile())  # pyright: ignore
    f.__qualname__ = Text("b")
    c = C()
    vars(c).update(__qualname__=Text("d"), __module__=Text("e"))
    for each in (C, f, c):
        name_of_callee(each)
    describe(c)


def test_a_lazy_module_is_not_loaded(monkeypatch):
    class Lazy(ModuleType):
        __getattribute__ = refuse

    monkeypatch.setitem(sys.modules, "hotloop_lazy", Lazy("hotloop_lazy"))
    monkeypatch.setitem(sys.modules, "hotloop_odd", object.__new__(hostile()))
    for module in ("hotloop_lazy", "hotloop_odd"):
        value = type("C", (list,), {"__module__": module})()
        assert describe(value) == f"{module}.C"


def code_of_here(a: int, b: int) -> int:
    return a + b


def test_a_place_is_sent_with_its_position():
    sent: list[Message] = []

    def send(message: Message) -> bool:
        sent.append(message)
        return len(sent) < 2

    describer, code = Describer(send), code_of_here.__code__
    at = next(i * 2 for i, each in enumerate(code.co_positions()) if each[3] == 16 and each[2] == 11)
    assert describer(7, code, at, 122, (1, "hunter2")) is True
    assert describer(8, code, -1, 0, (1, 2)) is False, "there was no room"
    line = code.co_firstlineno
    assert sent[0] == {
        "is": "place", "id": 7, "file": __file__, "function": "code_of_here", "first_line": line,
        "at": [line + 1, line + 1, 11, 16], "operation": 122, "callee": "", "operands": ["int", "str of 7"],
    }  # fmt: skip
    assert sent[1]["at"] == [line, -1, -1, -1]
    assert "hunter2" not in json.dumps(sent)


def test_a_call_is_sent_with_its_callee():
    sent: list[Message] = []
    describer = Describer(lambda message: not sent.append(message))
    describer(0, code_of_here.__code__, 0, 171, (np.stack, [np.zeros(2)]))
    describer(1, code_of_here.__code__, 0, 171, (list.append, [], 1))
    assert [(each["callee"], each["operands"]) for each in sent] == [
        ("numpy.stack", ["list of 1 × array float64 [2]"]),
        ("list.append", ["empty list", "int"]),
    ]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_has_no_shape_is_described_by_its_type():
    """Regression: a place that could not be described was described again and again, and never sent."""
    assert describe(torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])) == "torch.Tensor"
