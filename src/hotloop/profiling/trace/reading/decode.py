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
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

from hotloop.profiling.trace.reading import limits
from hotloop.profiling.trace.reading.open_files import Malformed

T = TypeVar("T")
Decoder = Callable[[Any], Any]


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


def decode(kind: type[T], content: Mapping[str, Any]) -> T:
    """Return an object of a dataclass from a JSON object.

    Raises:
        Malformed: A field is missing, or has another type or range than its annotation says.
    """
    return _dataclass_decoder(kind)(content)


@cache
def _dataclass_decoder(kind: type[Any]) -> Decoder:
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = [
        (each.name, _decoder(hints[each.name]), _is_required(each)) for each in dataclasses.fields(kind) if each.init
    ]

    def read(content: Any) -> Any:
        if type(content) is not dict:
            raise Malformed(f"{_shown(content)} stands where an object of {kind.__name__} is expected")
        values: dict[str, Any] = {}
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


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


@cache
def _decoder(hint: Any) -> Decoder:
    bounds: Between | None = None
    if typing.get_origin(hint) is Annotated:
        hint, bounds = typing.get_args(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        (inner,) = (each for each in arguments if each is not type(None))
        return _optional(_decoder(inner))
    if origin is Literal:
        return _one_of(frozenset(arguments))
    if origin is tuple and arguments[-1] is Ellipsis:
        return _items(_decoder(arguments[0]), bounds or Between(0, limits.ROWS))
    if origin is tuple:
        return _row(tuple(map(_decoder, arguments)))
    if origin is Mapping:
        return _mapping(_key_decoder(arguments[0]), _decoder(arguments[1]))
    if hint is int:
        return _whole(bounds or Between(-limits.LARGEST, limits.LARGEST))
    if hint is float:
        return _real(bounds or Between(-limits.LARGEST, limits.LARGEST))
    if hint in (str, bool):
        return _exactly(hint)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _member(hint)
    return _dataclass_decoder(hint)


def _optional(decoder: Decoder) -> Decoder:
    return lambda value: None if value is None else decoder(value)


def _exactly(kind: type) -> Decoder:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise Malformed(f"{_shown(value)} is not of type {kind.__name__}")
        return value

    return read


def _one_of(known: frozenset[Any]) -> Decoder:
    def read(value: Any) -> Any:
        if type(value) is not str or value not in known:
            raise Malformed(f"{_shown(value)} is none of {', '.join(sorted(known))}")
        return value

    return read


def _member(kind: type[StrEnum]) -> Decoder:
    known = {each.value: each for each in kind}

    def read(value: Any) -> Any:
        if type(value) is not str or value not in known:
            raise Malformed(f"{_shown(value)} is no {kind.__name__.lower()}")
        return known[value]

    return read


def _whole(bounds: Between) -> Decoder:
    def read(value: Any) -> int:
        if type(value) is not int or not bounds.least <= value <= bounds.most:
            raise Malformed(f"{_shown(value)} is not a whole number from {bounds.least} to {bounds.most}")
        return value

    return read


def _real(bounds: Between) -> Decoder:
    def read(value: Any) -> float:
        if type(value) not in (int, float) or not bounds.least <= value <= bounds.most:
            raise Malformed(f"{_shown(value)} is not a number from {bounds.least} to {bounds.most}")
        return float(value)

    return read


def _items(item: Decoder, bounds: Between) -> Decoder:
    def read(value: Any) -> tuple[Any, ...]:
        if type(value) is not list or not bounds.least <= len(value) <= bounds.most:
            raise Malformed(f"{_shown(value)} is not a list of {bounds.least} to {bounds.most} items")
        return tuple(map(item, value))

    return read


def _row(items: tuple[Decoder, ...]) -> Decoder:
    def read(value: Any) -> tuple[Any, ...]:
        if type(value) is not list or len(value) != len(items):
            raise Malformed(f"{_shown(value)} is not a list of {len(items)} items")
        return tuple(item(each) for item, each in zip(items, value, strict=True))

    return read


def _mapping(key: Decoder, item: Decoder) -> Decoder:
    def read(value: Any) -> dict[Any, Any]:
        if type(value) is not dict or len(value) > limits.ROWS:
            raise Malformed(f"{_shown(value)} is not an object of at most {limits.ROWS} keys")
        return {key(name): item(each) for name, each in value.items()}

    return read


def _key_decoder(hint: Any) -> Decoder:
    """Return what reads the keys of an object: JSON has numbers there only as text."""
    if hint is str:
        return lambda name: name
    whole = _decoder(hint)

    def read(name: str) -> int:
        if not (name.isascii() and name.isdigit() and len(name) < 20):
            raise Malformed(f"the key {_shown(name)} is not a whole number")
        return whole(int(name))

    return read


def _shown(value: Any) -> str:
    return repr(value)[:60] if isinstance(value, int | float | str | None) else f"a {type(value).__name__}"
