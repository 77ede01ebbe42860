"""On which machine, since which boot and in which process namespace a process runs: there its id is known.

Run directories are shared between containers and machines. A process id that is unknown here may be alive there.
"""

from __future__ import annotations

import hashlib
import os
import platform
from dataclasses import dataclass
from pathlib import Path

MACHINE_IDS = ("/etc/machine-id", "/var/lib/dbus/machine-id")
BOOT_ID = "/proc/sys/kernel/random/boot_id"
PID_NAMESPACE = "/proc/self/ns/pid"


@dataclass(frozen=True, slots=True)
class Host:
    """Where a process runs. What the system does not say is empty, and equal to nothing."""

    machine: str = ""
    """A hash of the machine's id and its host name: machines made from one image share the id."""
    boot: str = ""
    pid_namespace: str = ""

    def shares_processes(self, other: Host) -> bool:
        """Say whether a process id means the same in both."""
        return bool(self.boot and self.pid_namespace) and self == other

    def was_restarted(self, now: Host) -> bool:
        """Say whether this is the same machine before it was booted again."""
        return bool(self.machine and self.boot and now.boot) and self.machine == now.machine and self.boot != now.boot


def this_host() -> Host:
    """Return where this process runs."""
    machine_id = next(filter(None, map(_text, MACHINE_IDS)), "")
    name = f"{machine_id} {platform.node()}"
    return Host(
        machine=hashlib.sha256(name.encode()).hexdigest()[:16] if machine_id else "",
        boot=_text(BOOT_ID),
        pid_namespace=_link(PID_NAMESPACE),
    )


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
