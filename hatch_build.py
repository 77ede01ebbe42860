"""Builds the accelerator of spans (`hotloop._ticks`) when the package is installed, where that can be done.

It is never needed: without a compiler, on another system or on another interpreter, `hotloop.ticks` does the
same in Python, and the wheel is a pure one.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class AcceleratorHook(BuildHookInterface):
    """Compiles one C file beside its Python twin."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and mark the wheel as one for this interpreter; or leave it pure."""
        if self.target_name != "wheel" or not _can_build():
            return
        package = Path(self.root) / "src" / "hotloop"
        built = package / f"_ticks{sysconfig.get_config_var('EXT_SUFFIX')}"
        command = [
            *shlex.split(sysconfig.get_config_var("CC") or "cc"), "-O2", "-shared", "-fPIC",
            f"-I{sysconfig.get_paths()['include']}", str(package / "_ticks.c"), "-o", str(built),
        ]  # fmt: skip
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            reason = getattr(error, "stderr", "") or str(error)
            self.app.display_warning(f"hotloop goes without its accelerator: {reason.strip()[:500]}")
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["artifacts"].append(f"src/hotloop/{built.name}")


def _can_build() -> bool:
    free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    return sys.platform == "linux" and sys.implementation.name == "cpython" and not free_threaded
