"""Builds the accelerators of the recorder (the C files in `src`) when the package is installed, where that can be done.

They are never needed: without a compiler, on another system or on another interpreter, their Python twins do the
same, and the wheel is a pure one. It is all or nothing: every C file or none.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = (
    "spans/_hot_path.c",
    "profiling/recorder/call_tree/_fold.c",
    "profiling/recorder/deep/_functions.c",
)


class AcceleratorHook(BuildHookInterface):
    """Compiles each C file to where its Python twin stands."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and mark the wheel as one for this interpreter; or leave it pure."""
        if self.target_name != "wheel" or not _can_build():
            return
        built = []
        try:
            for source in SOURCES:
                built.append(_compile(Path(self.root) / "src" / "hotloop" / source))
        except (OSError, subprocess.CalledProcessError) as error:
            for each in built:
                each.unlink()
            reason = getattr(error, "stderr", "") or str(error)
            self.app.display_warning(f"hotloop goes without its accelerators: {reason.strip()[:500]}")
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["artifacts"] += [str(each.relative_to(self.root)) for each in built]


def _compile(source: Path) -> Path:
    built = source.with_name(source.stem + sysconfig.get_config_var("EXT_SUFFIX"))
    compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")
    include = f"-I{sysconfig.get_paths()['include']}"
    # Renamed into place when it is whole: this folder is imported from while it is built, by an editable install.
    with tempfile.TemporaryDirectory(dir=source.parent) as place:
        made = Path(place) / built.name
        command = [*compiler, "-O2", "-shared", "-fPIC", include, str(source), "-o", str(made), "-lm"]
        subprocess.run(command, check=True, capture_output=True, text=True)
        made.replace(built)
    return built


def _can_build() -> bool:
    free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    return sys.platform == "linux" and sys.implementation.name == "cpython" and not free_threaded
