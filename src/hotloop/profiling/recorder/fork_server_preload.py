"""Multiprocessing's fork server imports this module before it forks, so that its children record themselves."""

from __future__ import annotations

import os

from hotloop.profiling.recorder.child_processes import SERVER_VARIABLE, Settings, follow_spawned

if text := os.environ.pop(SERVER_VARIABLE, ""):
    settings = Settings.read(text)
    if settings.modules is not None:
        from hotloop.profiling.recorder.hooks import install, new_state

        install(new_state(settings.modules))
    follow_spawned(settings)
