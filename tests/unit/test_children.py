"""How multiprocessing is made to start recording children, and that it is put back."""

from __future__ import annotations

from multiprocessing import forkserver, spawn

from hotloop.record.children import START, follow_spawned


def test_spawned_interpreters_record_first_and_all_is_put_back():
    original = spawn.get_command_line
    modules = list(forkserver._forkserver._preload_modules)
    undo = follow_spawned()
    try:
        words = spawn.get_command_line(tracker_fd=3, pipe_handle=4)
        program = words[words.index("-c") + 1]
        assert program.startswith(START)
        assert "spawn_main(tracker_fd=3, pipe_handle=4)" in program
        assert forkserver._forkserver._preload_modules == [*modules, "hotloop.record.preload"]
    finally:
        undo()
    assert spawn.get_command_line is original
    assert forkserver._forkserver._preload_modules == modules
