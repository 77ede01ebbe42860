"""Hooks that listen to what a script prints and logs, for timings of its own that can be checked (`record.claims`).

They sit around the hooks that time these calls, and never touch the output. Only strings and plain numbers are
looked at: turning anything else into text may cost, wait for a device, or do something.
"""

from __future__ import annotations

import functools
import logging
import sys
import types
from threading import get_ident
from typing import Any

from hotloop.profiling.recorder.hooks import wrappers
from hotloop.profiling.recorder.hooks.patching import Patches, Subject, like
from hotloop.profiling.recorder.hooks.wrappers import Wrapper, hide_frame, mark, report_failure, skipped_by_warnings
from hotloop.profiling.recorder.printed_timings.collect import Current
from hotloop.spans.registry import recording

PLAIN = (str, int, float)


@skipped_by_warnings
def hearing(fn: Wrapper) -> Wrapper:
    """Put a printed text aside if it may hold a timing."""

    @functools.wraps(fn)
    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            if not wrappers.is_compiling() and recording():
                # What this call is given is put aside first: a failure to print is the script's own.
                hear_printed(args, kwargs.get("sep"))
            return fn(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    return mark(function)


def hear_printed(args: tuple[Any, ...], sep: Any) -> None:
    """Put aside what the caller of the wrapper that calls this prints."""
    try:
        if len(args) == 1:
            text = args[0]
            if type(text) is not str:
                return
        else:
            text = (sep if type(sep) is str else " ").join([str(each) if type(each) in PLAIN else "?" for each in args])
        book = Current.book
        if book.wants(text):
            wrapper = sys._getframe(1)
            caller = wrapper.f_back or wrapper  # An exit handler may be `print` itself.
            code = caller.f_code
            book.hear(get_ident(), text, (code.co_filename, caller.f_lineno, code.co_name))
    except Exception as error:
        if not report_failure("read what is printed", error):
            raise


@skipped_by_warnings
def hearing_log(fn: Wrapper) -> Wrapper:
    """Put a logged message aside if it may hold a timing."""

    @functools.wraps(fn)
    def handle(self: logging.Logger, record: logging.LogRecord) -> Any:
        try:
            if not wrappers.is_compiling() and recording():
                hear_logged(record)
            return fn(self, record)
        except BaseException as error:
            hide_frame(error)
            raise

    return mark(handle)


def hear_logged(record: logging.LogRecord) -> None:
    """Put aside what is logged."""
    try:
        message, args = record.msg, record.args
        if (
            type(message) is not str
            or type(args or ()) is not tuple
            or any(type(each) not in PLAIN for each in args or ())
        ):
            return
        try:
            text = message % args if args else message
        except (TypeError, ValueError):
            return  # The logging module tells the script that its message and arguments do not fit.
        book = Current.book
        if book.wants(text):
            book.hear(get_ident(), text, (record.pathname, record.lineno, record.funcName))
    except Exception as error:
        if not report_failure("read what is logged", error):
            raise


def on_builtins(module: types.ModuleType, patches: Patches) -> None:
    """Listen to print."""
    builtins: Any = module
    patches.put(builtins, "print", like(builtins.print, hearing(builtins.print)))


def on_logging(module: types.ModuleType, patches: Patches) -> None:
    """Listen to loggers."""
    logger: Any = module.Logger
    patches.put(logger, "handle", hearing_log(logger.handle))


SUBJECT = Subject(on_import={"builtins": on_builtins, "logging": on_logging})
"""Comes after the subject that times these calls, so that its wrappers are outside."""
