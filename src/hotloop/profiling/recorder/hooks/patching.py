"""Where hooks get hold of a program: each class as it is made, each module as it is imported.

`builtins.__build_class__` is wrapped, so that every class is looked at once, the user's and the libraries'
alike; a finder in front of `sys.meta_path` does the same for modules. What is put in place of an attribute
is remembered, and put back when hooks are removed.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import sys
import sysconfig
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from typing import Any

from hotloop.notice import notice
from hotloop.phases import Phase
from hotloop.profiling.recorder.hooks.wrappers import (
    SpansByType,
    Wrapper,
    hide_frame,
    is_wrapper,
    mark,
    skipped_by_warnings,
    span_of,
    timed_function,
    timed_method,
)

MISSING: Any = object()
_LIBRARY_DIRS = ("site-packages", "dist-packages")
_STDLIB = tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")})


@dataclass(frozen=True, slots=True)
class Target:
    """A function or method of a module that is to be timed."""

    path: str
    """`function` or `Class.method`."""
    phase: Phase | None
    name: str | None = None
    """The span's name, if not `function` or `Class.method`."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What one file of hooks looks for."""

    on_class: Callable[[type, Patches], None] | None = None
    on_import: Mapping[str, Callable[[types.ModuleType, Patches], None]] = field(default_factory=dict)
    """Module name to what is done when it has been imported."""


class Patches:
    """What has been put in place of what, so that it can be put back."""

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any, Any]] = []
        self._warned: set[str] = set()

    def put(self, owner: Any, name: str, new: Any) -> None:
        """Set an attribute of a class or module, remembering the old one."""
        old = vars(owner).get(name, MISSING)
        setattr(owner, name, new)
        self._done.append((owner, name, old, new))

    def time_method(
        self, cls: type, name: str, phase: Phase | None, wrap: Callable[..., Wrapper] = timed_method
    ) -> None:
        """Time a method that the class itself defines as a plain function, once."""
        fn = vars(cls).get(name)
        if isinstance(fn, types.FunctionType) and not is_wrapper(fn) and not inspect.isasyncgenfunction(fn):
            self.put(cls, name, wrap(fn, SpansByType(cls, name, phase)))

    def time_target(self, module: types.ModuleType, target: Target) -> None:
        """Time a function or method of a module, if it is there."""
        *holders, name = target.path.split(".")
        owner = functools.reduce(lambda at, part: getattr(at, part, None), holders, module)
        if owner is None or not hasattr(owner, name):
            return
        if isinstance(owner, type):
            self.time_method(owner, name, target.phase)
        elif not is_wrapper(getattr(owner, name)):
            each = span_of(target.name or target.path, target.phase)
            self.put(owner, name, like(getattr(owner, name), timed_function(getattr(owner, name), each)))

    def release(self, cls: type) -> None:
        """Put back everything of one class, which is about to be compiled by somebody else."""
        for entry in reversed([entry for entry in self._done if entry[0] is cls]):
            _put_back(*entry)
            self._done.remove(entry)

    def restore(self) -> None:
        """Put everything back, last first."""
        while self._done:
            _put_back(*self._done.pop())

    def replaced(self) -> dict[int, Any]:
        """Return the wrapper of each module-level function replaced, by the id of the original."""
        return {
            id(old): new for owner, _, old, new in self._done
            if isinstance(owner, types.ModuleType) and old is not MISSING
        }  # fmt: skip

    def attempt(self, what: str, work: Callable[..., None], *args: Any) -> None:
        """Do one piece of hooking; if it fails, warn once of that failure and go on without it."""
        try:
            work(*args)
        except Exception as error:
            if repr(error) not in self._warned:
                self._warned.add(repr(error))
                notice(f"cannot hook {what}, and goes on without: {error!r}")


def like(original: Any, wrapper: Any) -> Any:
    """Return a wrapper that becomes no bound method where the original does not: `class Logger: log = print`."""
    if isinstance(original, types.FunctionType):
        return wrapper
    unbound: Any = staticmethod(wrapper)
    return mark(unbound)


def pickled_by_name(wrapper: Any) -> str:
    """Have what `like` made pickled as the function it stands for is: by its name."""
    if not is_wrapper(wrapper):
        raise TypeError("cannot pickle 'staticmethod' object")
    return wrapper.__qualname__


def _put_back(owner: Any, name: str, old: Any, new: Any) -> None:
    if vars(owner).get(name, MISSING) is not new:
        return  # somebody has put their own thing there meanwhile, which is not ours to remove
    if old is MISSING:
        delattr(owner, name)
    else:
        setattr(owner, name, old)


@functools.cache
def _own_file(file: str) -> bool:
    return not file.startswith(_STDLIB) and not any(part in file for part in _LIBRARY_DIRS)


def is_own_module(module: types.ModuleType | None) -> bool:
    """Say whether a module is the user's: neither of the standard library nor installed."""
    file = getattr(module, "__file__", None)
    if module is None or not isinstance(file, str):
        return module is not None and module.__name__ == "__main__"
    return _own_file(file)


def module_of(cls: type) -> str:
    """Return the name of a class's module; "" for a class made in C that has none, as SWIG makes them."""
    return str(getattr(cls, "__module__", ""))


def is_own(cls: type) -> bool:
    """Say whether a class is the user's own."""
    return is_own_module(sys.modules.get(module_of(cls)))


def definer(cls: type, name: str) -> type | None:
    """Return the class in whose body a method that `cls` has is written."""
    for each in cls.__mro__:
        if name in each.__dict__:
            return each
    return None


def root(cls: type) -> str:
    """Return the top-level package a class comes from."""
    return module_of(cls).partition(".")[0]


def targets(*wanted: Target) -> Callable[[types.ModuleType, Patches], None]:
    """Return what times these functions and methods of a module once it is imported."""

    def on_import(module: types.ModuleType, patches: Patches) -> None:
        for target in wanted:
            patches.attempt(f"{module.__name__}.{target.path}", patches.time_target, module, target)

    return on_import


@skipped_by_warnings
def watch_classes(patches: Patches, look: Callable[[type], None]) -> None:
    """Have every class that is made from now on looked at, and all that are there already."""
    original: Callable[..., Any] = builtins.__build_class__

    @functools.wraps(original)
    def build_class(*args: Any, **kwargs: Any) -> Any:
        try:
            made = original(*args, **kwargs)
            if isinstance(made, type):
                look(made)
            return made
        except BaseException as error:
            hide_frame(error)
            raise

    patches.put(builtins, "__build_class__", build_class)
    seen: set[type] = set()
    waiting: list[type] = [object]
    while waiting:
        for cls in type.__subclasses__(waiting.pop()):
            if cls not in seen:
                seen.add(cls)
                waiting.append(cls)
                look(cls)


class ImportWatch:
    """A finder that lets the others find a module, and has it looked at when it has been run."""

    def __init__(self, names: Iterable[str], look: Callable[[types.ModuleType], None]) -> None:
        self._names = frozenset(names)
        self._look = look

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        """Find a module that is watched for, as the finders behind this one do."""
        if name not in self._names:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                self._attach(spec)
                return spec
        return None

    def _attach(self, spec: ModuleSpec) -> None:
        loader: Any = spec.loader
        if loader is None or isinstance(loader, type):
            return  # built-in modules are loaded by a class, which all of them share
        run = loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            del loader.exec_module
            try:
                run(module)
            except BaseException as error:
                hide_frame(error)
                raise
            self._look(module)

        loader.exec_module = exec_module


def rebind(patches: Patches, packages: frozenset[str]) -> None:
    """Replace what modules already took by `from module import function` before hooks were installed."""
    new = patches.replaced()
    for module in list(sys.modules.values()):
        if not isinstance(module, types.ModuleType):
            continue
        if module.__name__.partition(".")[0] in packages or is_own_module(module):
            for name, value in list(vars(module).items()):
                if id(value) in new and callable(value):
                    patches.put(module, name, new[id(value)])
