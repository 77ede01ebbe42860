"""Zero-code hooks: they turn an unmodified script into spans and counters.

Installed before the script runs, they act only on what it imports and defines. There is one file per subject; each says
what to do with a class (`on_class`) and with a module (`on_import`).
"""

from __future__ import annotations

import copyreg
import sys
import types
from collections.abc import Callable

from hotloop.profiling.recorder import wrapper_overhead
from hotloop.profiling.recorder.hooks import (
    environments,
    logging,
    pickling,
    printed_output,
    replay,
    saving,
    sb3,
    waiting,
)
from hotloop.profiling.recorder.hooks.patching import (
    ImportWatch,
    Installation,
    Patches,
    Subject,
    module_of,
    pickled_by_name,
    rebind,
    watch_classes,
)
from hotloop.profiling.recorder.hooks.state import HookState
from hotloop.profiling.recorder.hooks.torch import optimisers, tensors, training_mode

Uninstall = Callable[[], None]

LIBRARIES = frozenset({"gymnasium", "gym", "stable_baselines3", "sb3_contrib", "numba"})
"""Packages in which names bound by `from … import …` before the hooks are replaced too."""

SUBJECTS: tuple[Subject, ...] = tuple(
    each.SUBJECT
    for each in (
        environments,
        tensors,
        optimisers,
        wrapper_overhead,  # Measures the hooks of torch, so it comes after them.
        replay,
        saving,
        sb3,
        training_mode,
        waiting,
        logging,
        printed_output,
    )
)


def new_state(modules_depth: int = 1) -> HookState:
    """Return the state for a new recording: a new one, or that of the hooks a forked process inherits, cleared.

    Args:
        modules_depth: Levels of nested torch module calls to time; 1 is the outermost only.

    Raises:
        ValueError: If `modules_depth` is negative.
    """
    found = _installed()
    if found is None:
        return HookState(modules_depth)
    found.state.begin(modules_depth)
    return found.state


def install(state: HookState | None = None) -> Uninstall:
    """Install all hooks, unless they are; return a function that removes them.

    Args:
        state: From `new_state`.
    """
    found = _installed()
    return _install(state or HookState()) if found is None else found.uninstall


def _installed() -> Installation | None:
    """Return this process's hooks. Python's own list of finders knows them: a second list could contradict it."""
    watches = [each for each in sys.meta_path if isinstance(each, ImportWatch)]
    return next((each.installation for each in watches if each.installation is not None), None)


def _install(state: HookState) -> Uninstall:
    patches = Patches()

    def on_class(cls: type) -> None:
        for subject in subjects:
            if subject.on_class is not None:
                patches.attempt(f"{module_of(cls)}.{cls.__qualname__}", subject.on_class, cls, patches, state)

    def on_import(module: types.ModuleType) -> None:
        for subject in subjects:
            work = subject.on_import.get(module.__name__)
            if work is not None:
                patches.attempt(module.__name__, work, module, patches, state)

    def uninstall() -> None:
        if watch in sys.meta_path:
            sys.meta_path.remove(watch)
        patches.restore()
        copyreg.dispatch_table.pop(staticmethod, None)

    subjects = (*SUBJECTS, pickling.subject(on_class))
    names = {name for subject in subjects for name in subject.on_import}
    watch = ImportWatch(names, on_import, Installation(state, uninstall))
    try:
        copyreg.pickle(staticmethod, pickled_by_name)
        sys.meta_path.insert(0, watch)
        for name in names & sys.modules.keys():
            on_import(sys.modules[name])
        watch_classes(patches, on_class)
        patches.attempt("names imported before", rebind, patches, LIBRARIES)
    except BaseException:
        uninstall()
        raise
    return uninstall
