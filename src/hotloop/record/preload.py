"""Imported by multiprocessing's fork server before it forks: its children then record themselves."""

from __future__ import annotations

import os

from hotloop.record.children import start_here
from hotloop.record.session import HOOKS_VARIABLE, RUN_VARIABLE

if os.environ.get(RUN_VARIABLE):
    if HOOKS_VARIABLE in os.environ:
        from hotloop.record.hooks import install

        install(modules_depth=int(os.environ[HOOKS_VARIABLE]))
    os.register_at_fork(after_in_child=start_here)
