"""The machine, boot and process namespace of a process: its process id is valid only there.

Run directories may be shared between containers and machines. A process id that does not exist here may exist there.
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
    """Where a process runs. Fields that the system does not report are empty and never count as equal."""

    machine: str = ""
    """A hash of the machine's id and its host name: machines made from one image share the id."""
    boot: str = ""
    pid_namespace: str = ""

    def shares_processes(self, other: Host) -> bool:
        """Return whether a process id means the same process on both."""
        return bool(self.boot and self.pid_namespace) and self == other

    def was_restarted(self, now: Host) -> bool:
        """Return whether this is the same machine before a reboot."""
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
