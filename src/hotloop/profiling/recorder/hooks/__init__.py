"""Zero-code hooks: they turn an unmodified script into spans and counters.

Installed before the script runs, they act only on what it imports and defines. One file a subject; each says
what it does with a class (`on_class`) and with a module (`on_import`).
"""

from __future__ import annotations

import copyreg
import sys
import types
from collections.abc import Callable

from hotloop.profiling.recorder import wrapper_overhead as cost
from hotloop.profiling.recorder.hooks import environments as envs
from hotloop.profiling.recorder.hooks import logging as writers
from hotloop.profiling.recorder.hooks import pickling, replay, sb3
from hotloop.profiling.recorder.hooks import printing as claims
from hotloop.profiling.recorder.hooks import saving as savers
from hotloop.profiling.recorder.hooks import waiting as waits
from hotloop.profiling.recorder.hooks.patching import (
    ImportWatch,
    Patches,
    Subject,
    module_of,
    pickled_by_name,
    rebind,
    watch_classes,
)
from hotloop.profiling.recorder.hooks.torch import modules
from hotloop.profiling.recorder.hooks.torch import tensors as torch_hooks
from hotloop.profiling.recorder.hooks.torch import training_mode as validity
from hotloop.profiling.recorder.hooks.torch import unused_graphs as learning

Uninstall = Callable[[], None]

LIBRARIES = frozenset({"gymnasium", "gym", "stable_baselines3", "sb3_contrib", "numba"})
"""Packages in which names taken by `from … import …` before the hooks are replaced too."""

SUBJECTS = (envs, torch_hooks, modules, cost, learning, replay, savers, sb3, validity, waits, writers, claims)
"""The files of hooks. What hooks of torch cost is measured when they are in place."""

_uninstall: Uninstall | None = None


def install(modules_depth: int = 1) -> Uninstall:
    """Install all hooks; return what removes them. Installing twice is installing once.

    Args:
        modules_depth: Levels of nested torch module calls to time; 1 is the outermost only.

    Raises:
        ValueError: If `modules_depth` is negative.
    """
    global _uninstall
    if modules_depth < 0:
        raise ValueError(f"modules_depth is {modules_depth}: give 0 for no module calls, 1 for the outermost")
    modules.Depth.modules = modules_depth
    if _uninstall is None:
        _uninstall = _install()
    return _uninstall


def _install() -> Uninstall:
    torch_hooks.lead.forget()
    patches = Patches()

    def look_at_class(cls: type) -> None:
        for subject in subjects:
            if subject.on_class is not None:
                patches.attempt(f"{module_of(cls)}.{cls.__qualname__}", subject.on_class, cls, patches)

    def look_at_module(module: types.ModuleType) -> None:
        for subject in subjects:
            work = subject.on_import.get(module.__name__)
            if work is not None:
                patches.attempt(module.__name__, work, module, patches)

    subjects: tuple[Subject, ...] = (
        *(each.SUBJECT for each in SUBJECTS),
        pickling.subject(look_at_class),
    )
    watch = ImportWatch({name for subject in subjects for name in subject.on_import}, look_at_module)

    def uninstall() -> None:
        global _uninstall
        if watch in sys.meta_path:
            sys.meta_path.remove(watch)
        patches.restore()
        copyreg.dispatch_table.pop(staticmethod, None)
        _uninstall = None

    try:
        copyreg.pickle(staticmethod, pickled_by_name)
        sys.meta_path.insert(0, watch)
        for name in {name for subject in subjects for name in subject.on_import}:
            if name in sys.modules:
                look_at_module(sys.modules[name])
        watch_classes(patches, look_at_class)
        patches.attempt("names imported before", rebind, patches, LIBRARIES)
    except BaseException:
        uninstall()
        raise
    return uninstall
