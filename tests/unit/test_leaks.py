"""What watches over all tests is itself tested: it must see what is left behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def test_shared_memory_that_is_still_open_is_seen(request: pytest.FixtureRequest) -> None:
    watch = request.config.pluginmanager.get_plugin(str(Path(__file__).parents[1] / "conftest.py"))
    assert watch is not None
    before = watch.take_stock()
    descriptor = os.memfd_create("hotloop-replay")
    inode = os.fstat(descriptor).st_ino
    assert watch.left_behind(before, watch.take_stock()) == [f"shared memory /memfd:hotloop (inode {inode})"]
    os.close(descriptor)
    assert watch.left_behind(before, watch.take_stock()) == []
