"""Hooks that keep hooked code usable by libraries that inspect or compile code: cloudpickle, numba, torch.compile.

A class of `__main__` is sent to a worker process by value. It must arrive there as its author wrote it, whether or not
hotloop is there; where hooks are installed, it is hooked on arrival. Compilers must not try to compile a wrapper.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING

from hotloop.profiling.recorder.hooks import environments, patching, printed_output, replay, waiting, wrappers
from hotloop.profiling.recorder.hooks.patching import OnImport, Patches, Subject
from hotloop.profiling.recorder.hooks.torch import modules, optimisers, tensors
from hotloop.profiling.recorder.hooks.wrappers import IN_C, P, R, S, is_wrapper, mark

if TYPE_CHECKING:
    from hotloop.profiling.recorder.hooks.state import HookState


def on_cloudpickle(inspect_class: Callable[[type], None]) -> OnImport:
    """Return a function that makes cloudpickle send original functions and inspect the classes it receives."""

    def on_import(module: ModuleType, patches: Patches, state: HookState) -> None:
        if not is_wrapper(module._class_setstate):
            pickler = module.Pickler
            patches.put(pickler, "_dynamic_function_reduce", sending(pickler._dynamic_function_reduce))
            patches.put(
                pickler, "reducer_override", reducing(pickler.reducer_override, module._lookup_module_and_qualname)
            )
            patches.put(module, "_class_setstate", receiving(module._class_setstate, inspect_class))

    return on_import


def sending(fn: Callable[[S, Callable], R]) -> Callable[[S, Callable], R]:
    """Pickle the original of a wrapper."""

    @functools.wraps(fn)
    def _dynamic_function_reduce(self: S, func: Callable) -> R:
        return fn(self, inspect.unwrap(func, stop=lambda each: not is_wrapper(each)))

    return mark(_dynamic_function_reduce)


def reducing(fn: Callable[[S, object], R], find: Callable[[object], object | None]) -> Callable[[S, object], R]:
    """Pickle a wrapper in C as its original, unless it can be imported.

    Args:
        fn: The pickler's method.
        find: Returns where an object can be imported from, or None.
    """

    @functools.wraps(fn)
    def reducer_override(self: S, obj: object) -> R:
        if callable(obj) and isinstance(obj, IN_C) and find(obj) is None:
            obj = inspect.unwrap(obj, stop=lambda each: not is_wrapper(each))
        return fn(self, obj)

    return mark(reducer_override)


def receiving(fn: Callable[P, type], inspect_class: Callable[[type], None]) -> Callable[P, type]:
    """Inspect the class that cloudpickle has restored."""

    @functools.wraps(fn)
    def _class_setstate(*args: P.args, **kwargs: P.kwargs) -> type:
        made = fn(*args, **kwargs)
        inspect_class(made)
        return made

    return mark(_class_setstate)


def on_jitclass(module: ModuleType, patches: Patches, state: HookState) -> None:
    """Give numba the class without hooks, because numba compiles every function of the class."""
    original = module.register_class_type
    if is_wrapper(original):
        return

    @functools.wraps(original)
    def register_class_type(cls: type, *args: P.args, **kwargs: P.kwargs) -> type:
        patches.release(cls)
        return original(cls, *args, **kwargs)

    patches.put(module, "register_class_type", mark(register_class_type))


FACTORIES = (
    wrappers.method_in_python,
    wrappers.function_in_python,
    environments.stepping_in_python,
    replay.adding,
    replay.sampling,
    optimisers.optimising,
    optimisers.zeroing,
    modules.looking,
    modules.listing,
    modules.calling_in_python,
    tensors.going_back,
    tensors.syncing_in_python,
    tensors.syncing_device,
    tensors.moving,
    patching.building,
    waiting.entering,
    waiting.making_methods,
    printed_output.hearing,
    printed_output.hearing_log,
)
"""All functions that make wrappers. The wrappers of one factory share its inner code objects."""


def on_eval_frame(module: ModuleType, patches: Patches, state: HookState) -> None:
    """Keep torch.compile from compiling a wrapper that compiled code calls after a graph break."""
    for factory in FACTORIES:
        assert isinstance(factory, FunctionType)
        for inner in factory.__code__.co_consts:
            if isinstance(inner, CodeType):
                module.skip_code(inner)


def subject(inspect_class: Callable[[type], None]) -> Subject:
    """Return these hooks; `inspect_class` hooks a class that came from another process."""
    packages = ("cloudpickle", "ray.cloudpickle", "joblib.externals.cloudpickle")
    return Subject(
        on_import={
            **{f"{package}.cloudpickle": on_cloudpickle(inspect_class) for package in packages},
            "torch._dynamo.eval_frame": on_eval_frame,
            "numba.experimental.jitclass.base": on_jitclass,
        }
    )
