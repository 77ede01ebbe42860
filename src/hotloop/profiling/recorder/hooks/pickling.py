"""Hooks that keep hooked code usable by those who take code apart: cloudpickle, numba, torch.compile.

A class of `__main__` goes to a worker process by value. It must arrive there as its author wrote it, whether
or not hotloop is there; where hooks are installed, it is hooked on arrival. Compilers must not try to compile
a wrapper.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from hotloop.profiling.recorder.hooks import environments, patching, printing, replay, waiting, wrappers
from hotloop.profiling.recorder.hooks.patching import Patches, Subject
from hotloop.profiling.recorder.hooks.torch import modules, tensors
from hotloop.profiling.recorder.hooks.wrappers import is_wrapper, mark


def on_cloudpickle(look: Callable[[type], None]) -> Callable[[types.ModuleType, Patches], None]:
    """Return what makes cloudpickle send originals and has what arrives looked at."""

    def on_import(module: types.ModuleType, patches: Patches) -> None:
        pickler: Any = module.Pickler
        reduce_function = pickler._dynamic_function_reduce
        set_state = module._class_setstate

        @functools.wraps(reduce_function)
        def _dynamic_function_reduce(self: Any, func: Any) -> Any:
            while is_wrapper(func):
                func = func.__wrapped__
            return reduce_function(self, func)

        @functools.wraps(set_state)
        def _class_setstate(obj: Any, state: Any) -> Any:
            made = set_state(obj, state)
            look(made)
            return made

        if not is_wrapper(set_state):
            patches.put(pickler, "_dynamic_function_reduce", mark(_dynamic_function_reduce))
            patches.put(module, "_class_setstate", mark(_class_setstate))

    return on_import


def on_jitclass(module: types.ModuleType, patches: Patches) -> None:
    """Give numba the class as it was written, for it compiles every function in it."""
    original = module.register_class_type
    if is_wrapper(original):
        return

    @functools.wraps(original)
    def register_class_type(cls: type, *args: Any, **kwargs: Any) -> Any:
        patches.release(cls)
        return original(cls, *args, **kwargs)

    patches.put(module, "register_class_type", mark(register_class_type))


FACTORIES: tuple[types.FunctionType, ...] = (
    wrappers.timed_method, wrappers.timed_function, environments.stepping, replay.adding, replay.sampling,
    tensors.optimising, modules.calling, tensors.going_back, tensors.syncing,
    tensors.syncing_device, tensors.moving, patching.watch_classes,
    waiting.entering, waiting.making_methods, printing.hearing, printing.hearing_log,
)  # type: ignore[assignment]  # fmt: skip
"""All that make wrappers. The wrappers of one factory share its inner code objects."""


def on_eval_frame(module: types.ModuleType, patches: Patches) -> None:
    """Tell torch.compile not to start on a wrapper that compiled code calls after a graph break."""
    for factory in FACTORIES:
        for inner in factory.__code__.co_consts:
            if isinstance(inner, types.CodeType):
                module.skip_code(inner)


def subject(look: Callable[[type], None]) -> Subject:
    """Return these hooks; `look` hooks a class that came from another process."""
    homes = (
        "cloudpickle.cloudpickle",
        "ray.cloudpickle.cloudpickle",
        "joblib.externals.cloudpickle.cloudpickle",
    )
    return Subject(
        on_import={
            **dict.fromkeys(homes, on_cloudpickle(look)),
            "torch._dynamo.eval_frame": on_eval_frame,
            "numba.experimental.jitclass.base": on_jitclass,
        }
    )
