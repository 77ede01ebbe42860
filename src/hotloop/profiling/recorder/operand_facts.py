"""What can be said of objects without reading their values or running code of the script: types, lengths, shapes."""

from __future__ import annotations

import collections
import functools
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
)
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
SIZED = (dict, str, bytes, bytearray)
CONTAINERS = (list, tuple, set, frozenset, collections.deque)
CALLS = (171, 142)
"""The instructions CALL and CALL_FUNCTION_EX of Python 3.11, whose first operand is what they call."""

# Of classes and objects, only what C returns is looked up: a class of the script may define everything else, down to
# `__class__`, and its metaclass `__eq__` and `__hash__`.
_mro: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__
_members: Callable[[type], Mapping[str, object]] = type.__dict__["__dict__"].__get__
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
    try:
        return _facts(cls, value, depth)
    except Exception:  # A container that another thread changes, a tensor without such a property, ...
        return type_name(cls)


def _facts(cls: type, value: Any, depth: int) -> str:
    if _is_any(cls, CONTAINERS) and depth < DEEPEST:
        return _container(value, depth)
    if _is_any(cls, SIZED):
        return f"{cls.__name__} of {len(value)}"
    name = type_name(cls)
    if name == "numpy.ndarray" and _is_really(cls, name):
        return _array(value)
    if name in ("torch.Tensor", "torch.nn.parameter.Parameter") and _is_really(cls, name):
        return _tensor(value)
    base = library_base(cls)
    return f"{name} ({base})" if base else name


def _is_any(cls: type, classes: Sequence[type]) -> bool:
    return any(cls is each for each in classes)


def _is_really(cls: type, full_name: str) -> bool:
    """Check that a class is what a module has by this name: a class of the script may pretend to be it."""
    module, _, name = full_name.rpartition(".")
    return _dictionary(sys.modules.get(module)).get(name) is cls


def _container(value: Any, depth: int) -> str:
    name, n = type(value).__name__, len(value)
    if not n:
        return f"empty {name}"
    some = list(itertools.islice(value, LOOKED_AT))
    mixed = any(type(each) is not type(some[0]) for each in some)
    kinds = "mixed" if mixed else describe(some[0], depth + 1)
    return f"{name} of {n} × {kinds}"


def _array(value: Any) -> str:
    strided = "" if value.flags.c_contiguous else " strided"
    return f"array {value.dtype.name} {list(value.shape)}{strided}"


def _tensor(value: Any) -> str:
    torch = sys.modules["torch"]
    with torch._C.DisableTorchFunction():  # so that no mode of the script sees this
        strided = " strided" if value.layout is torch.strided and not value.is_contiguous() else ""
        device, gradient = str(value.device), " with gradient" if value.requires_grad else ""
        where = "" if device == "cpu" else f" on {device}"
        return f"tensor {str(value.dtype).removeprefix('torch.')} {list(value.shape)}{strided}{where}{gradient}"


def type_name(cls: type) -> str:
    """Return the full name of a class: "torch.Tensor"; that of a built-in one without its module."""
    return _joined(_module_of(cls), _qualname(cls))


def _module_of(cls: type) -> str:
    try:
        return _text(_module(cls))
    except AttributeError:  # It was made without one.
        return ""


def library_base(cls: type) -> str:
    """Return the first class of a library that a class of the user's inherits from; "" if there is none."""
    if not _is_users(cls):
        return ""
    return next((type_name(base) for base in _mro(cls)[1:] if base is not object and not _is_users(base)), "")


def _is_users(cls: type) -> bool:
    name = _module_of(cls)
    file = _dictionary(sys.modules.get(name)).get("__file__")
    return name == "__main__" or (type(file) is str and _is_own(file))


_is_own = functools.lru_cache(maxsize=2_000)(is_own)


def name_of_callee(called: Any) -> str:
    """Return the full name of what is called, whatever it was imported as: "numpy.stack", "list.append"."""
    for _ in range(10):  # wrappers around wrappers
        cls = type(called)
        if cls is functools.partial:
            called = called.func
        elif cls is MethodType:
            called = called.__func__
        elif _is_any(cls, IN_C):
            called = called.fn
        else:
            break
    cls = type(called)
    if cls is FunctionType:
        return _joined(called.__module__, called.__qualname__)
    if cls is BuiltinFunctionType:
        owner = called.__self__
        if owner is None or issubclass(type(owner), ModuleType):
            return _joined(called.__module__, called.__name__)
        return f"{_owner(owner if issubclass(type(owner), type) else type(owner))}.{called.__name__}"
    if cls is MethodDescriptorType:
        return f"{_owner(called.__objclass__)}.{called.__name__}"
    if issubclass(cls, type):
        return type_name(called)
    if type_name(cls) == "numpy.ufunc" and _is_really(cls, "numpy.ufunc"):
        return f"numpy.{called.__name__}"
    # Callables in C with a name, such as NumPy's functions.
    name = _attribute(called, "__qualname__") or _attribute(called, "__name__")
    return _joined(_attribute(called, "__module__"), name) if name else type_name(cls)


_SHOWN = {"torch._C.TensorBase": "torch.Tensor", "torch._C._TensorBase": "torch.Tensor"}
_INTERNAL = {"torch._C._VariableFunctions": "torch", "torch._C._VariableFunctionsClass": "torch"}


def _owner(cls: type) -> str:
    name = type_name(cls)
    return _SHOWN.get(name) or _INTERNAL.get(name) or name


def _attribute(value: object, name: str) -> str:
    """Look up a text in an object's own dictionary, or where C keeps it; "" if there is none."""
    return _text(_dictionary(value).get(name)) or _text(_in_c(value, name))


def _dictionary(value: object) -> dict[str, object]:
    """Return an object's own dictionary; an empty one if it has none."""
    found = _in_c(value, "__dict__")
    return found if type(found) is dict else {}


def _in_c(value: object, name: str) -> object:
    """Return an attribute that is stored in C; None if it is anything else."""
    for each in _mro(type(value)):
        found = _members(each).get(name)
        if type(found) is GetSetDescriptorType or type(found) is MemberDescriptorType:
            try:
                return found.__get__(value)
            except AttributeError:
                return None
        if found is not None and name == "__dict__":
            return None
    return None


def _text(value: object) -> str:
    return value if type(value) is str else ""


def _joined(module: object, name: object) -> str:
    module, name = _text(module), _text(name)
    return name if module in ("builtins", "") else f"{module}.{name}"
