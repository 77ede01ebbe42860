"""Tests of `conftest.py`: the leak check detects leaks, and SIGINT reaches the children of a test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import pytest

# Started by a shell that exits immediately, so not a child of this process, like a test in another xdist worker.
STRANGER = """
import sys
from multiprocessing.shared_memory import SharedMemory
block = SharedMemory(create=True, size=8)
print(block.name, flush=True)
sys.stdin.read()
block.close()
block.unlink()
print("ended", flush=True)
"""


@pytest.fixture
def watch(request: pytest.FixtureRequest) -> Any:
    """The module with the leak check."""
    return request.config.pluginmanager.get_plugin(str(Path(__file__).parents[1] / "conftest.py"))


def test_open_shared_memory_is_detected(watch: Any) -> None:
    before = watch.take_stock()
    descriptor = os.memfd_create("hotloop-replay")
    inode = os.fstat(descriptor).st_ino
    assert watch.left_behind(before, watch.take_stock()) == [f"shared memory /memfd:hotloop (inode {inode})"]
    os.close(descriptor)
    assert watch.left_behind(before, watch.take_stock()) == []


def test_a_shared_memory_block_is_detected_unless_another_program_uses_it(watch: Any) -> None:
    before = watch.take_stock()
    block = SharedMemory(create=True, size=8)
    shell = ["sh", "-c", 'exec 3<&0; "$0" -c "$1" <&3 &', sys.executable, STRANGER]
    with subprocess.Popen(shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as stranger:
        assert stranger.stdin is not None and stranger.stdout is not None
        foreign = stranger.stdout.readline().strip()
        stranger.wait()
        after = watch.take_stock()
        assert {foreign, block.name} <= after.blocks
        assert f"shared-memory block {block.name}" in watch.left_behind(before, after)
        assert f"shared-memory block {foreign}" not in watch.left_behind(before, after)
        stranger.stdin.close()
        assert stranger.stdout.read() == "ended\n"
    block.close()
    block.unlink()
    assert watch.left_behind(before, watch.take_stock()) == []


def test_a_child_can_be_interrupted() -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (child.returncode, child.stderr.splitlines()[-1]) == (-signal.SIGINT, "KeyboardInterrupt")


def test_a_child_can_be_interrupted_when_the_suite_runs_in_the_background() -> None:
    """A shell without job control starts background jobs with SIGINT ignored: every test of Ctrl-C failed there."""
    words = ["-m", "pytest", "-p", "no:cacheprovider", f"{__file__}::{test_a_child_can_be_interrupted.__name__}"]
    ignoring = ["sh", "-c", 'trap \'\' INT; exec "$0" "$@"', sys.executable, *words]
    done = subprocess.run(ignoring, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
