"""Configurations as TOML files and as JSON: written into each run, read by `--config`, compared by `--resume`."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from hotloop.errors import HotloopError
from hotloop.files import write_whole
from hotloop.json_types import Json
from hotloop.training.run.config_checks import MOST, Settings

C = TypeVar("C", bound=Settings)
FREE = frozenset({"kernel", "device", "threads", "workers", "restarts", "verbose"})
"""May differ when a run is resumed: they change how, not what, is computed."""


def write_toml(config: Settings, path: Path) -> None:
    """Write a flat configuration dataclass."""
    # TOML writes strings, numbers, booleans and lists as JSON does.
    lines = [f"{name} = {json.dumps(value)}" for name, value in asdict(config).items() if value is not None]
    write_whole(path, "\n".join([*lines, ""]).encode())


def read_toml(path: Path) -> dict[str, Json]:
    """Return the settings of a file. Hyphens in names become underscores."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise HotloopError(f"--config {path} cannot be read ({error.strerror}): name a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise HotloopError(f"--config {path} is not TOML ({error}): write lines such as `envs = 256`") from error
    return {name.replace("-", "_"): value for name, value in found.items()}


def with_settings(config: C, settings: Mapping[str, Json], source: str) -> C:
    """Return a configuration with some settings changed; errors name their `source`."""
    known = {each.name: getattr(config, each.name) for each in fields(config)}
    kinds = get_type_hints(type(config))
    for name, value in settings.items():
        if name not in known:
            raise HotloopError(f"{source} has the unknown setting {name!r}: use some of {', '.join(sorted(known))}")
        try:
            known[name] = _as_type(value, kinds[name])
        except TypeError as error:
            kind = kinds[name].__name__ if isinstance(kinds[name], type) else str(kinds[name]).replace("typing.", "")
            seen = f"{source} has {name} = {value!r:.80}"
            raise HotloopError(f"{seen}: give a value of type {kind}, such as {known[name]!r}") from error
    made = type(config)(**known)
    check_finite(made)
    return made


def derive(kind: type[C], config: Settings, **own: object) -> C:
    """Make a configuration from the settings that have the same names in another one, and from `own`."""
    shared = {each.name: getattr(config, each.name) for each in fields(kind) if hasattr(config, each.name)}
    return kind(**shared | own)


def check_finite(config: Settings) -> None:
    """Reject settings that are not finite, or so large that 32-bit results computed from them would not be."""
    for each in fields(config):
        value = getattr(config, each.name)
        if isinstance(value, float) and not abs(value) <= MOST:
            flag = each.name.replace("_", "-")
            raise HotloopError(f"--{flag} is {value}: give a finite number, from {-MOST:,} to {MOST:,}")


def check_same(ours: Settings, theirs: Mapping[str, Json], source: Path) -> None:
    """Reject a configuration that differs from that of the checkpoint to resume.

    A checkpoint may be older than a setting. Then it lacks the setting, and was trained with what is now the default.
    """
    trained_with = _plain(type(ours)()) | dict(theirs)
    for name, value in _plain(ours).items():
        if name not in FREE and trained_with[name] != value:
            flag = name.replace("_", "-")
            raise HotloopError(
                f"cannot resume with --{flag} {value}: {source} was trained with {trained_with[name]}; leave it out"
            )


def _plain(config: Settings) -> dict[str, Json]:
    """Return the settings as they are read back from JSON."""
    return json.loads(json.dumps(asdict(config)))


def _as_type(value: Json, kind: Any) -> Json:
    """Return a value as a setting of this type holds it.

    Raises:
        TypeError: It has another type.
    """
    arguments = get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        for each in arguments:
            try:
                return _as_type(value, each)
            except TypeError:
                continue
    elif get_origin(kind) is tuple and isinstance(value, list | tuple):
        return tuple(_as_type(each, arguments[0]) for each in value)
    elif type(value) is int and abs(value) >= 1 << 63:
        pass  # no setting is that large
    elif get_origin(kind) is Literal:
        if any(type(each) is type(value) and each == value for each in arguments):
            return value
    elif kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        if math.isfinite(value):
            return float(value)
    elif type(value) is kind:
        return value
    raise TypeError
