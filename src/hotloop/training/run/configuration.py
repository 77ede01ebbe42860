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
from hotloop.training.run.config_checks import MOST

C = TypeVar("C")
FREE = frozenset({"kernel", "device", "threads", "workers", "restarts", "verbose"})
"""May differ when a run is resumed: they change how, not what, is computed."""
UNFIT = object()


def write_toml(config: Any, path: Path) -> None:
    """Write a flat configuration dataclass."""
    # TOML writes strings, numbers, booleans and lists as JSON does.
    lines = [f"{name} = {json.dumps(value)}" for name, value in asdict(config).items() if value is not None]
    write_whole(path, "\n".join([*lines, ""]).encode())


def read_toml(path: Path) -> dict[str, Any]:
    """Return the settings of a file; hyphens and underscores in names are the same.

    Raises:
        HotloopError: It is not there, or is not TOML.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise HotloopError(f"--config {path} cannot be read ({error.strerror}): name a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise HotloopError(f"--config {path} is not TOML ({error}): write lines such as `envs = 256`") from error
    return {name.replace("-", "_"): value for name, value in found.items()}


def with_settings(config: C, settings: Mapping[str, Any], source: str) -> C:
    """Return a configuration with some settings changed.

    Args:
        config: A flat configuration dataclass.
        settings: New values by name.
        source: Where they come from, for the error.
    """
    known = {each.name: getattr(config, each.name) for each in fields(config)}  # type: ignore[arg-type]
    kinds = get_type_hints(type(config))
    for name, value in settings.items():
        if name not in known:
            raise HotloopError(f"{source} has the unknown setting {name!r}: use some of {', '.join(sorted(known))}")
        fitting = _fitting(value, kinds[name])
        if fitting is UNFIT:
            kind = kinds[name].__name__ if isinstance(kinds[name], type) else str(kinds[name]).replace("typing.", "")
            seen = f"{source} has {name} = {value!r:.80}"
            raise HotloopError(f"{seen}: give a value of type {kind}, such as {known[name]!r}")
        known[name] = fitting
    made = type(config)(**known)
    check_finite(made)
    return made


def check_finite(config: Any) -> None:
    """Refuse settings that are not finite, or so large that what is computed from them in 32 bits would not be."""
    for each in fields(config):
        value = getattr(config, each.name)
        if isinstance(value, float) and not abs(value) <= MOST:
            flag = each.name.replace("_", "-")
            raise HotloopError(f"--{flag} is {value}: give a finite number, from {-MOST:,} to {MOST:,}")


def check_same(ours: Any, theirs: Mapping[str, Any], source: Path) -> None:
    """Refuse to resume with another configuration than the checkpoint's."""
    for name, value in json.loads(json.dumps(asdict(ours))).items():
        if name not in FREE and theirs.get(name) != value:
            flag = name.replace("_", "-")
            raise HotloopError(
                f"cannot resume with --{flag} {value}: {source} was trained with {theirs.get(name)}; leave it out"
            )


def _fitting(value: Any, kind: Any) -> Any:
    """Return a value as a setting of this type holds it, or UNFIT."""
    arguments = get_args(kind)
    if get_origin(kind) is Literal:
        return next((each for each in arguments if type(each) is type(value) and each == value), UNFIT)
    if get_origin(kind) in (Union, UnionType):
        return next((found for each in arguments if (found := _fitting(value, each)) is not UNFIT), UNFIT)
    if get_origin(kind) is tuple:
        found = tuple(_fitting(each, arguments[0]) for each in value) if isinstance(value, list | tuple) else (UNFIT,)
        return UNFIT if UNFIT in found else found
    if type(value) is int and abs(value) >= 1 << 63:
        return UNFIT
    if kind is float and type(value) in (int, float):
        return float(value) if math.isfinite(value) else UNFIT
    return value if type(value) is kind else UNFIT
