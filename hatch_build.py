"""Builds the C extensions of the recorder (the C files in `src`) when the package is installed, if possible.

They are optional: without a compiler, or on another system or interpreter, Python implementations are used and the
wheel is pure Python. Either all C files are built or none.
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
    "profiling/recorder/_stack_reader.c",
    "profiling/recorder/_call_counter.c",
    "profiling/recorder/_observer.c",
    "profiling/recorder/hooks/_hooks.c",
    "profiling/recorder/_channel.c",
)


class AcceleratorHook(BuildHookInterface):
    """Compiles each C file into the folder of its Python implementation."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile and tag the wheel for this interpreter, or leave it pure Python."""
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
            self.app.display_warning(f"hotloop is installed without its C extensions: {reason.strip()[:500]}")
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["artifacts"] += [str(each.relative_to(self.root)) for each in built]


def _compile(source: Path) -> Path:
    built = source.with_name(source.stem + sysconfig.get_config_var("EXT_SUFFIX"))
    compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")
    headers = sysconfig.get_paths()["include"]
    include = [f"-I{headers}", f"-I{headers}/internal/mimalloc"]
    # Moved into place when complete: with an editable install, this folder may be imported from during the build.
    with tempfile.TemporaryDirectory(dir=source.parent) as place:
        made = Path(place) / built.name
        # NDEBUG: an assertion in CPython's headers must not end the recorded process.
        command = [*compiler, "-O2", "-DNDEBUG", "-shared", "-fPIC", *include, str(source), "-o", str(made), "-lm"]
        subprocess.run(command, check=True, capture_output=True, text=True)
        made.replace(built)
    return built


def _can_build() -> bool:
    free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    return sys.platform == "linux" and sys.implementation.name == "cpython" and not free_threaded
