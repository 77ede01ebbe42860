"""What can be said of objects without reading their values or running code of the script: types, lengths, shapes."""

from __future__ import annotations

import collections
import functools
import sys
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType, CodeType, FunctionType, MethodDescriptorType, MethodType, ModuleType
from typing import Any

from hotloop.json_types import Json
from hotloop.profiling.recorder.hooks.wrappers import IN_C
from hotloop.profiling.recorder.line_table import UNIT_BYTES
from hotloop.profiling.recorder.messages import Message
from hotloop.profiling.recorder.own_files import is_own

DEEPEST = 2
"""Containers within containers that are described."""
LOOKED_AT = 8
"""Elements of a container whose types are compared."""
CONTAINERS = (list, tuple, set, frozenset, collections.deque)
CALLS = (171, 142)
"""The instructions CALL and CALL_FUNCTION_EX of Python 3.11, whose first operand is what they call."""

_mro: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__
_module: Callable[[type], object] = type.__dict__["__module__"].__get__
_qualname: Callable[[type], str] = type.__dict__["__qualname__"].__get__


class Describer:
    """Describes each place once, and sends it to the recorder.

    Args:
        send: Sends a message; returns whether there was room for it.
    """

    def __init__(self, send: Callable[[Message], bool]) -> None:
        self._send = send

    def __call__(
        self, number: int, code: CodeType, instruction: int, operation: int, operands: Sequence[object]
    ) -> bool:
        """Send a place; return whether there was room for it."""
        callee = ""
        if operation in CALLS:
            callee, operands = name_of_callee(operands[0]), operands[1:]
        facts: list[Json] = [describe(each) for each in operands]
        return self._send(
            {
                "is": "place",
                "id": number,
                "file": code.co_filename,
                "function": code.co_qualname,
                "first_line": code.co_firstlineno,
                "at": list(_position(code, instruction)),
                "operation": operation,
                "callee": callee,
                "operands": facts,
            }
        )


def _position(code: CodeType, instruction: int) -> tuple[int, int, int, int]:
    """Return line, last line, first and last column of an instruction; -1 for what is not known."""
    if instruction < 0:
        return code.co_firstlineno, -1, -1, -1
    line, *others = _positions(code)[instruction // UNIT_BYTES]
    end_line, column, end_column = (-1 if each is None else each for each in others)
    return line or code.co_firstlineno, end_line, column, end_column


@functools.lru_cache(maxsize=64)
def _positions(code: CodeType) -> list[tuple[int | None, int | None, int | None, int | None]]:
    return list(code.co_positions())


def describe(value: object, depth: int = 0) -> str:
    """Return what an object is: "list of 256 × array float32 [4, 96, 96]". Never its value."""
    cls = type(value)
    if cls in CONTAINERS and depth < DEEPEST:
        return _container(value, depth)
    if cls is dict:
        return f"dict of {len(value)}"  # pyright: ignore[reportArgumentType]
    if cls in (str, bytes, bytearray):
        return f"{cls.__name__} of {len(value)}"  # pyright: ignore[reportArgumentType]
    name = type_name(cls)
    if name == "numpy.ndarray":
        return _array(value)
    if name in ("torch.Tensor", "torch.nn.parameter.Parameter"):
        return _tensor(value)
    base = library_base(cls)
    return f"{name} ({base})" if base else name


def _container(value: object, depth: int) -> str:
    name, n = type(value).__name__, len(value)  # pyright: ignore[reportArgumentType]
    if not n:
        return f"empty {name}"
    some = []
    for each in value:  # pyright: ignore[reportGeneralTypeIssues]
        some.append(each)
        if len(some) == LOOKED_AT:
            break
    types = {type(each) for each in some}
    mixed = len(types) > 1
    kinds = "mixed" if mixed else describe(some[0], depth + 1)
    return f"{name} of {n} × {kinds}"


def _array(value: Any) -> str:
    strided = "" if value.flags.c_contiguous else " strided"
    return f"array {value.dtype} {list(value.shape)}{strided}"


def _tensor(value: Any) -> str:
    strided = "" if value.is_contiguous() else " strided"
    device, gradient = str(value.device), " with gradient" if value.requires_grad else ""
    where = "" if device == "cpu" else f" on {device}"
    return f"tensor {str(value.dtype).removeprefix('torch.')} {list(value.shape)}{strided}{where}{gradient}"


def type_name(cls: type) -> str:
    """Return the full name of a class: "torch.Tensor"; that of a built-in one without its module."""
    return _joined(_module(cls), _qualname(cls))


def library_base(cls: type) -> str:
    """Return the first class of a library that a class of the user's inherits from; "" if there is none."""
    if not _is_users(cls):
        return ""
    return next((type_name(base) for base in _mro(cls)[1:] if base is not object and not _is_users(base)), "")


@functools.lru_cache(maxsize=2_000)
def _is_users(cls: type) -> bool:
    name = _module(cls)
    module = sys.modules.get(name) if isinstance(name, str) else None
    file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
    return name == "__main__" or (isinstance(file, str) and is_own(file))


def name_of_callee(called: Any) -> str:
    """Return the full name of what is called, whatever it was imported as: "numpy.stack", "list.append"."""
    for _ in range(10):  # wrappers around wrappers
        if isinstance(called, functools.partial):
            called = called.func
        elif type(called) is MethodType:
            called = called.__func__
        elif isinstance(called, IN_C):
            called = called.fn
        else:
            break
    if type(called) is FunctionType:
        return _joined(called.__module__, called.__qualname__)
    if type(called) is BuiltinFunctionType:
        owner = called.__self__
        if owner is None or isinstance(owner, ModuleType):
            return _joined(called.__module__, called.__name__)
        return f"{_owner(owner if isinstance(owner, type) else type(owner))}.{called.__name__}"
    if type(called) is MethodDescriptorType:
        return f"{_owner(called.__objclass__)}.{called.__name__}"
    if isinstance(called, type):
        return type_name(called)
    # Callables in C with a name, such as NumPy's functions: what their own dictionary says runs no code.
    name, module = _plain(called, "__qualname__") or _plain(called, "__name__"), _plain(called, "__module__")
    if name:
        return _joined(module, name)
    if type_name(type(called)) == "numpy.ufunc":
        return f"numpy.{called.__name__}"  # pyright: ignore[reportAttributeAccessIssue]
    return type_name(type(called))


_SHOWN = {"torch._C.TensorBase": "torch.Tensor", "torch._C._TensorBase": "torch.Tensor"}
_INTERNAL = {"torch._C._VariableFunctions": "torch", "torch._C._VariableFunctionsClass": "torch"}


def _owner(cls: type) -> str:
    name = type_name(cls)
    return _SHOWN.get(name) or _INTERNAL.get(name) or name


def _plain(value: object, name: str) -> str:
    """Look up a text in an object's own dictionary."""
    try:
        found = object.__getattribute__(value, "__dict__").get(name)
    except AttributeError:
        return ""
    return found if type(found) is str else ""


def _joined(module: object, name: str) -> str:
    if not isinstance(module, str) or module in ("builtins", ""):
        return name
    return f"{module}.{name}"
