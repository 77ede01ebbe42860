"""Configurations as TOML files and as JSON: written into each run, read by `--config`, compared by `--resume`."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

from hotloop.errors import HotloopError

C = TypeVar("C")
FREE = frozenset({"kernel", "device", "threads", "workers", "restarts", "verbose"})
"""May differ when a run is resumed: they change how, not what, is computed."""


def write_toml(config: Any, path: Path) -> None:
    """Write a flat configuration dataclass."""
    # TOML writes strings, numbers, booleans and lists as JSON does.
    lines = [f"{name} = {json.dumps(value)}" for name, value in asdict(config).items() if value is not None]
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")


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
    for name, value in settings.items():
        if name not in known:
            raise HotloopError(f"{source} has the unknown setting {name!r}: use some of {', '.join(sorted(known))}")
        known[name] = _fitting(name, value, known[name], source)
    return type(config)(**known)


def check_same(ours: Any, theirs: Mapping[str, Any], source: Path) -> None:
    """Refuse to resume with another configuration than the checkpoint's."""
    for name, value in json.loads(json.dumps(asdict(ours))).items():
        if name not in FREE and theirs.get(name) != value:
            flag = name.replace("_", "-")
            raise HotloopError(
                f"cannot resume with --{flag} {value}: {source} was trained with {theirs.get(name)}; leave it out"
            )


def _fitting(name: str, value: Any, default: Any, source: str) -> Any:
    if isinstance(default, tuple) and isinstance(value, list):
        return tuple(value)
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if default is not None and type(value) is not type(default):
        kind = type(default).__name__
        raise HotloopError(f"{source} has {name} = {value!r}: give a value of type {kind}, such as {default!r}")
    return value
