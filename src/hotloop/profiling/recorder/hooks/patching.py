"""Where hooks attach to a program: each class when it is created, each module when it is imported.

`builtins.__build_class__` is wrapped, so that every class is inspected once, the user's and the libraries' alike; a
finder at the front of `sys.meta_path` does the same for modules. Replaced attributes are remembered, and restored when
hooks are removed.
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
from typing import TYPE_CHECKING

from hotloop.notice import notice
from hotloop.phases import Phase
from hotloop.profiling.recorder.hooks.wrappers import (
    P,
    R,
    SpansByType,
    hide_frame,
    in_python,
    is_wrapper,
    mark,
    skipped_by_warnings,
    timed_function,
    timed_method,
)
from hotloop.spans.registry import hook_span

if TYPE_CHECKING:
    from hotloop.profiling.recorder.hooks.state import HookState

MISSING = object()
_LIBRARY_DIRS = ("site-packages", "dist-packages")
_STDLIB = tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")})


@dataclass(frozen=True, slots=True)
class Target:
    """A function or method of a module to time."""

    path: str
    """`function` or `Class.method`."""
    phase: Phase | None
    name: str | None = None
    """The span's name, if not `function` or `Class.method`."""


OnClass = Callable[[type, "Patches", "HookState"], None]
OnImport = Callable[[types.ModuleType, "Patches", "HookState"], None]
Wrap = Callable[[types.FunctionType, SpansByType], Callable]


@dataclass(frozen=True, slots=True)
class Subject:
    """What one file of hooks does with the classes and modules of a program."""

    on_class: OnClass | None = None
    on_import: Mapping[str, OnImport] = field(default_factory=dict)
    """By module name: called when that module has been imported."""


class Patches:
    """Replaces attributes and restores them."""

    def __init__(self) -> None:
        self._done: list[tuple[object, str, object, object]] = []
        """Owner, name, old value, new value."""
        self._warned: set[str] = set()
        self._in_python = False

    def put(self, owner: object, name: str, new: object) -> None:
        """Set an attribute of a class, module or object, remembering the old one."""
        old = vars(owner).get(name, MISSING)
        if self._in_python and isinstance(owner, type):
            new = in_python(new)
        setattr(owner, name, new)
        self._done.append((owner, name, old, new))

    def time_method(self, cls: type, name: str, phase: Phase | None, wrap: Wrap = timed_method) -> None:
        """Time a method that the class itself defines as a plain function, once."""
        fn = vars(cls).get(name)
        if isinstance(fn, types.FunctionType) and not is_wrapper(fn) and not inspect.isasyncgenfunction(fn):
            self.put(cls, name, wrap(fn, SpansByType(cls, name, phase)))

    def time_target(self, module: types.ModuleType, target: Target) -> None:
        """Time a function or method of a module, if it exists."""
        *holders, name = target.path.split(".")
        owner = functools.reduce(lambda at, part: getattr(at, part, None), holders, module)
        if owner is None or not hasattr(owner, name):
            return
        if isinstance(owner, type):
            self.time_method(owner, name, target.phase)
        elif not is_wrapper(getattr(owner, name)):
            each = hook_span(target.name or target.path, target.phase)
            self.put(owner, name, like(getattr(owner, name), timed_function(getattr(owner, name), each)))

    def use_python(self) -> None:
        """Replace methods' wrappers in C, now and later: something is about to be compiled that may go through them."""
        if self._in_python:
            return
        self._in_python = True
        for i, (owner, name, old, new) in enumerate(self._done):
            if isinstance(owner, type) and vars(owner).get(name) is new and (python := in_python(new)) is not new:
                setattr(owner, name, python)
                self._done[i] = owner, name, old, python
                _rebind_compiler(new, python)

    def release(self, cls: type) -> None:
        """Restore everything of one class, which is about to be compiled."""
        for entry in reversed([entry for entry in self._done if entry[0] is cls]):
            _put_back(*entry)
            self._done.remove(entry)

    def restore(self) -> None:
        """Restore everything, last first."""
        while self._done:
            _put_back(*self._done.pop())

    def replaced(self) -> dict[int, object]:
        """Return the wrapper of each module-level function replaced, by the id of the original."""
        done = [entry for entry in self._done if isinstance(entry[0], types.ModuleType) and entry[2] is not MISSING]
        return {id(old): new for _, _, old, new in done}

    def attempt(self, what: str, work: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Install one hook; if that fails, warn once and continue without it."""
        try:
            work(*args, **kwargs)
        except Exception as error:
            if repr(error) not in self._warned:
                self._warned.add(repr(error))
                notice(f"cannot hook {what}, and goes on without: {error!r}")


def like(original: Callable[P, R], wrapper: Callable[P, R]) -> Callable[P, R] | staticmethod[P, R]:
    """Return a wrapper that becomes a bound method only if the original does: `class Logger: log = print`."""
    return wrapper if isinstance(original, types.FunctionType) else mark(staticmethod(wrapper))


def pickled_by_name(wrapper: staticmethod[P, R]) -> str:
    """Pickle a wrapper that `like` returned in the same way as its original: by name."""
    if not is_wrapper(wrapper):
        raise TypeError("cannot pickle 'staticmethod' object")
    return wrapper.__qualname__


def _put_back(owner: object, name: str, old: object, new: object) -> None:
    if vars(owner).get(name, MISSING) is not new:
        return  # The script has replaced it in the meantime, and keeps its own value.
    if old is MISSING:
        delattr(owner, name)
    else:
        setattr(owner, name, old)


def _rebind_compiler(old: object, new: object) -> None:
    """Replace a function that torch.compile has remembered as the original `Module.__call__`."""
    for module in [each for name, each in list(sys.modules.items()) if name.startswith("torch._dynamo")]:
        for name in [name for name, value in vars(module).items() if value is old]:
            setattr(module, name, new)


def is_own_module(module: types.ModuleType | None) -> bool:
    """Check whether a module is the user's: neither of the standard library nor installed."""
    file = getattr(module, "__file__", None)
    if module is None or not isinstance(file, str):
        return module is not None and module.__name__ == "__main__"
    return not file.startswith(_STDLIB) and not any(part in file for part in _LIBRARY_DIRS)


def module_of(cls: type) -> str:
    """Return the name of a class's module; "" for a class made in C that has none, as those of SWIG."""
    return str(getattr(cls, "__module__", ""))


def is_own(cls: type) -> bool:
    """Check whether a class is the user's own."""
    return is_own_module(sys.modules.get(module_of(cls)))


def definer(cls: type, name: str) -> type | None:
    """Return the class among `cls` and its bases that defines a method."""
    return next((each for each in cls.__mro__ if name in vars(each)), None)


def root(cls: type) -> str:
    """Return the top-level package a class comes from."""
    return module_of(cls).partition(".")[0]


def targets(*wanted: Target) -> OnImport:
    """Return a function that times these functions and methods of a module once it is imported."""

    def on_import(module: types.ModuleType, patches: Patches, state: HookState) -> None:
        for target in wanted:
            patches.attempt(f"{module.__name__}.{target.path}", patches.time_target, module, target)

    return on_import


def watch_classes(patches: Patches, inspect_class: Callable[[type], None]) -> None:
    """Inspect every existing class, and every class that is created from now on."""
    patches.put(builtins, "__build_class__", building(builtins.__build_class__, inspect_class))
    seen: set[type] = set()
    waiting: list[type] = [object]
    while waiting:
        for cls in type.__subclasses__(waiting.pop()):
            if cls not in seen:
                seen.add(cls)
                waiting.append(cls)
                inspect_class(cls)


@skipped_by_warnings
def building(fn: Callable[P, R], inspect_class: Callable[[type], None]) -> Callable[P, R]:
    """Inspect each class that `__build_class__` creates."""

    @functools.wraps(fn)
    def build_class(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            made = fn(*args, **kwargs)
            if isinstance(made, type):
                inspect_class(made)
            return made
        except BaseException as error:
            hide_frame(error)
            raise

    return build_class


class ImportWatch:
    """A finder that lets the other finders find a module, and handles it once it has been executed.

    Args:
        names: Modules to watch for.
        handle: Called with each of them after its import.
        installation: The hooks that it belongs to, if it does.
    """

    def __init__(
        self, names: Iterable[str], handle: Callable[[types.ModuleType], None], installation: Installation | None = None
    ) -> None:
        self._names = frozenset(names)
        self._handle = handle
        self.installation = installation

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a watched module with the finders after this one."""
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
        loader = spec.loader
        if loader is None or isinstance(loader, type):
            return  # Built-in modules are loaded by a class, which all of them share.
        run = loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            del loader.exec_module
            try:
                run(module)
            except BaseException as error:
                hide_frame(error)
                raise
            self._handle(module)

        loader.exec_module = exec_module


@dataclass(frozen=True, slots=True)
class Installation:
    """Hooks that are installed in this process."""

    state: HookState
    uninstall: Callable[[], None]


def rebind(patches: Patches, packages: frozenset[str]) -> None:
    """Replace names that modules bound by `from module import function` before hooks were installed."""
    new = patches.replaced()
    for module in list(sys.modules.values()):
        if not isinstance(module, types.ModuleType):
            continue
        if module.__name__.partition(".")[0] in packages or is_own_module(module):
            for name, value in list(vars(module).items()):
                if id(value) in new and callable(value):
                    patches.put(module, name, new[id(value)])
