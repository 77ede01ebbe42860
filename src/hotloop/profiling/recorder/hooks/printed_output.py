"""Hooks that read what a script prints and logs, to find timings of its own that can be checked (`printed_timings`).

They wrap the hooks that time these calls, and never change the output. Only strings and plain numbers are read:
turning anything else into text may be slow, wait for a device, or have side effects.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable
from threading import get_ident
from types import ModuleType
from typing import TYPE_CHECKING

from hotloop.profiling.recorder.hooks import wrappers
from hotloop.profiling.recorder.hooks.patching import Patches, Subject, like
from hotloop.profiling.recorder.hooks.wrappers import P, R, hide_frame, mark, skipped_by_warnings
from hotloop.spans.registry import recording

if TYPE_CHECKING:
    from hotloop.profiling.recorder.hooks.state import HookState

PLAIN = (str, int, float)


@skipped_by_warnings
def hearing(fn: Callable[P, R], state: HookState) -> Callable[P, R]:
    """Keep a printed text if it may contain a timing."""

    @functools.wraps(fn)
    def function(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            if not wrappers.is_compiling() and recording():
                # Kept before it is printed: a failure to print is the script's own.
                hear_printed(state, args, kwargs.get("sep"))
            return fn(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    return mark(function)


def hear_printed(state: HookState, args: tuple, sep: object) -> None:
    """Keep what is printed by the caller of the wrapper that calls this."""
    try:
        if len(args) == 1 and type(args[0]) is not str:
            return
        text = (sep if type(sep) is str else " ").join([str(each) if type(each) in PLAIN else "?" for each in args])
        printed = state.printed
        if printed.wants(text):
            wrapper = sys._getframe(1)
            caller = wrapper.f_back or wrapper  # An exit handler may be `print` itself.
            code = caller.f_code
            printed.send(get_ident(), text, (code.co_filename, caller.f_lineno, code.co_name))
    except Exception as error:
        if not state.failures.report("read what is printed", error):
            raise


@skipped_by_warnings
def hearing_log(
    fn: Callable[[logging.Logger, logging.LogRecord], R], state: HookState
) -> Callable[[logging.Logger, logging.LogRecord], R]:
    """Keep a logged message if it may contain a timing."""

    @functools.wraps(fn)
    def handle(self: logging.Logger, record: logging.LogRecord) -> R:
        try:
            if not wrappers.is_compiling() and recording():
                hear_logged(state, record)
            return fn(self, record)
        except BaseException as error:
            hide_frame(error)
            raise

    return mark(handle)


def hear_logged(state: HookState, record: logging.LogRecord) -> None:
    """Keep what is logged."""
    try:
        message, args = record.msg, record.args
        plain = type(args or ()) is tuple and all(type(each) in PLAIN for each in args or ())
        if type(message) is not str or not plain:
            return
        try:
            text = message % args if args else message
        except (TypeError, ValueError):
            return  # The logging module reports that the message and its arguments do not match.
        printed = state.printed
        if printed.wants(text):
            printed.send(get_ident(), text, (record.pathname, record.lineno, record.funcName))
    except Exception as error:
        if not state.failures.report("read what is logged", error):
            raise


def on_builtins(module: ModuleType, patches: Patches, state: HookState) -> None:
    """Read what is printed."""
    patches.put(module, "print", like(module.print, hearing(module.print, state)))


def on_logging(module: ModuleType, patches: Patches, state: HookState) -> None:
    """Read what is logged."""
    patches.put(module.Logger, "handle", hearing_log(module.Logger.handle, state))


SUBJECT = Subject(on_import={"builtins": on_builtins, "logging": on_logging})
"""Comes after the subject that times these calls, so that these wrappers are the outer ones."""
