"""Converts plain JSON to frozen dataclasses, whose annotations describe the file.

Unknown keys are ignored, missing keys take the field's default, and values that do not match the annotation are
refused. So code that receives such an object need not check it.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, partial
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from hotloop.json_types import Json, JsonObject
from hotloop.profiling.trace.reading import limits
from hotloop.profiling.trace.reading.open_files import Malformed

T = TypeVar("T")
Decoder = Callable[[Json], Any]
Hint: TypeAlias = Any
"""A type as an annotation gives it: a class, a union, `Annotated[...]`."""


@dataclass(frozen=True, slots=True)
class Between:
    """The smallest and the largest number that is allowed, or the fewest and the most items of a list."""

    least: float
    most: float


Count = Annotated[int, Between(0, limits.LARGEST)]
"""Also of nanoseconds and bytes."""
Clock = Annotated[int, Between(-limits.LARGEST, limits.LARGEST)]
"""A moment of a monotonic clock."""
UnixNs = Annotated[int, Between(0, limits.LARGEST_UNIX_NS)]
Index = Annotated[int, Between(0, (1 << 31) - 1)]
Amount = Annotated[float, Between(0, limits.LARGEST)]
Cost = Annotated[float, Between(0, 1e12)]
"""Recording overhead of one call, in nanoseconds."""


def decode(kind: type[T], content: JsonObject) -> T:
    """Return an object of a dataclass from a JSON object.

    Raises:
        Malformed: A field is missing, or has another type or range than its annotation says.
    """
    return _dataclass_decoder(kind)(content)


@cache
def _dataclass_decoder(kind: type) -> Decoder:
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = [
        (each.name, _decoder(hints[each.name]), _is_required(each)) for each in dataclasses.fields(kind) if each.init
    ]

    def read(content: Json):
        if not isinstance(content, dict):
            raise Malformed(f"{_shown(content)} stands where an object of {kind.__name__} is expected")
        values = {}
        for name, field, required in fields:
            if name in content:
                try:
                    values[name] = field(content[name])
                except Malformed as error:
                    raise Malformed(f"{name}: {error}") from None
            elif required:
                raise Malformed(f"{name} is missing")
        return kind(**values)

    return read


def _is_required(field: dataclasses.Field) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


@cache
def _decoder(hint: Hint) -> Decoder:
    bounds: Between | None = None
    if typing.get_origin(hint) is Annotated:
        hint, bounds = typing.get_args(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        (inner,) = (each for each in arguments if each is not type(None))
        return partial(_optional, _decoder(inner))
    if origin is Literal:
        return partial(_one_of, dict(zip(arguments, arguments, strict=True)), f"none of {', '.join(sorted(arguments))}")
    if origin is tuple and arguments[-1] is Ellipsis:
        return partial(_items, _decoder(arguments[0]), bounds or Between(0, limits.ROWS))
    if origin is tuple:
        return partial(_row, tuple(map(_decoder, arguments)))
    if origin is Mapping:
        return partial(_mapping, None if arguments[0] is str else _decoder(arguments[0]), _decoder(arguments[1]))
    if hint is int:
        return partial(_whole, bounds or Between(-limits.LARGEST, limits.LARGEST))
    if hint is float:
        return partial(_real, bounds or Between(-limits.LARGEST, limits.LARGEST))
    if hint in (str, bool):
        return partial(_exactly, hint)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return partial(_one_of, {each.value: each for each in hint}, f"no {hint.__name__.lower()}")
    return _dataclass_decoder(hint)


def _optional(decoder: Decoder, value: Json):
    return None if value is None else decoder(value)


def _exactly(kind: type, value: Json) -> Json:
    if type(value) is not kind:
        raise Malformed(f"{_shown(value)} is not of type {kind.__name__}")
    return value


def _one_of(known: Mapping[str, str], problem: str, value: Json) -> str:
    if not isinstance(value, str) or value not in known:
        raise Malformed(f"{_shown(value)} is {problem}")
    return known[value]


def _whole(bounds: Between, value: Json) -> int:
    if type(value) is not int or not bounds.least <= value <= bounds.most:
        raise Malformed(f"{_shown(value)} is not a whole number from {bounds.least} to {bounds.most}")
    return value


def _real(bounds: Between, value: Json) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not bounds.least <= value <= bounds.most:
        raise Malformed(f"{_shown(value)} is not a number from {bounds.least} to {bounds.most}")
    return float(value)


def _items(item: Decoder, bounds: Between, value: Json) -> tuple:
    if not isinstance(value, list) or not bounds.least <= len(value) <= bounds.most:
        raise Malformed(f"{_shown(value)} is not a list of {bounds.least} to {bounds.most} items")
    return tuple(map(item, value))


def _row(items: tuple[Decoder, ...], value: Json) -> tuple:
    if not isinstance(value, list) or len(value) != len(items):
        raise Malformed(f"{_shown(value)} is not a list of {len(items)} items")
    return tuple(item(each) for item, each in zip(items, value, strict=True))


def _mapping(key: Decoder | None, item: Decoder, value: Json) -> dict:
    if not isinstance(value, dict) or len(value) > limits.ROWS:
        raise Malformed(f"{_shown(value)} is not an object of at most {limits.ROWS} keys")
    return {_number(name, key) if key else name: item(each) for name, each in value.items()}


def _number(key: str, decoder: Decoder) -> int:
    """Return a number that is the key of an object: JSON has only text there."""
    if not (key.isascii() and key.isdigit() and len(key) < 20):
        raise Malformed(f"the key {_shown(key)} is not a whole number")
    return decoder(int(key))


def _shown(value: Json) -> str:
    return repr(value)[:60] if isinstance(value, int | float | str | None) else f"a {type(value).__name__}"
