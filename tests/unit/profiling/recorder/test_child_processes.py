"""How multiprocessing is made to start recording children, and that it is put back."""

from __future__ import annotations

import os
from multiprocessing import forkserver, spawn

from hotloop.profiling.recorder.child_processes import Settings, follow_spawned
from hotloop.profiling.recorder.record_options import RecordOptions

SETTINGS = Settings("some/run 'quoted' \udcff", RecordOptions(budget=0.02), 2)


def test_settings_survive_the_command_line():
    assert Settings.read(SETTINGS.text()) == SETTINGS
    assert SETTINGS.program().isascii()
    seen = []
    program = SETTINGS.program().replace("from hotloop.profiling.recorder.child_processes import start_here; ", "")
    exec(program, {"start_here": seen.append})
    assert [Settings.read(each) for each in seen] == [SETTINGS]


def test_spawned_interpreters_record_first_and_all_is_put_back(monkeypatch):
    original, server = spawn.get_command_line, forkserver._forkserver
    modules, environment = list(server._preload_modules), dict(os.environ)
    started = []
    monkeypatch.setattr(
        server, "ensure_running", lambda: started.append((list(server._preload_modules), dict(os.environ)))
    )
    stub = server.ensure_running
    undo = follow_spawned(SETTINGS)
    try:
        words = spawn.get_command_line(tracker_fd=3, pipe_handle=4)
        program = words[words.index("-c") + 1]
        assert program.startswith(SETTINGS.program())
        assert "spawn_main(tracker_fd=3, pipe_handle=4)" in program
        server.ensure_running()
    finally:
        undo()
    ((preloaded, seen),) = started
    assert preloaded == [*modules, "hotloop.profiling.recorder.fork_server_preload"]
    assert set(seen) - set(environment) == {"HOTLOOP_CHILDREN"}
    assert spawn.get_command_line is original
    assert (server._preload_modules, server.ensure_running) == (modules, stub)
    assert dict(os.environ) == environment
