"""`hotloop run script.py [args]`: records an unmodified training script or module.

Everything after the script's name belongs to the script, so its options need no quoting.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from hotloop.errors import HotloopError

A_SHARE = "a share above 0 and up to 100%, such as 1%"
USAGE = "hotloop run [options] (script.py | -m module) [args ...]"
LAYERS_EVERY = 20
EXAMPLES = """\
Everything after the script's name belongs to the script:
  hotloop run train.py --lr 3e-4
  hotloop run --out runs/mine -m mypackage.train --seed 1
  hotloop run --after 10s --for 60 train.py"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options. `split` separates them from the script and its arguments."""
    parser.usage = USAGE
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("--out", metavar="DIR", help="run directory (default: runs/<time>-<script>)")
    after = "begin after N environment steps, or N seconds (10s)"
    add("--after", type=_after, default=(0, 0.0), metavar="N|Ns", help=after)
    add("--for", dest="seconds", type=_positive, default=0.0, metavar="SECONDS", help="record only this long")
    add("--budget", type=_share, default=0.01, metavar="1%", help="allowed overhead of spans and samples (default 1%%)")
    modules = "time torch modules down to this depth (default 1); if given, also every layer, forward and backward"
    add("--modules", type=_depth, metavar="DEPTH", help=modules)
    modules_every = f"time layers in one update out of K (default {LAYERS_EVERY})"
    add("--modules-every", type=_whole, metavar="K", help=modules_every)
    add("--functions", type=_whole, default=0, metavar="N", help="trace all function calls of N iterations")
    add("--ops", type=_whole, default=0, metavar="N", help="trace torch's operators in N iterations")
    warmup = "iterations before --functions and --ops begin (default 100, and the first update)"
    add("--warmup", type=_depth, metavar="N", help=warmup)
    hz = "stack samples per second (default 100, 0: none)"
    add("--hz", type=_not_negative, default=100.0, metavar="HZ", help=hz)
    add("--summary-every", type=_positive, default=0.0, metavar="SECONDS", help="print a summary this often")


def split(parser: argparse.ArgumentParser, words: list[str]) -> tuple[list[str], list[str]]:
    """Return the options of `hotloop run`, and the words from the script (or -m) on."""
    takes_value = {name for action in parser._actions for name in action.option_strings if action.nargs != 0}
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            return words[:at], words[at + 1 :]
        if word == "-m" or not word.startswith("-"):
            break
        at += 2 if word in takes_value else 1
    return words[:at], words[at:]


def run(arguments: argparse.Namespace) -> int:
    """Replace this process with the script, recorded; the exit code is the script's."""
    from hotloop.cli.summaries import start_printing
    from hotloop.profiling.recorder.record_options import RecordOptions
    from hotloop.profiling.recorder.script import ScriptOptions, claim_run, run_script

    target, is_module, args = _target(arguments.rest)
    every = arguments.modules_every or (LAYERS_EVERY if arguments.modules else 0)
    if arguments.modules == 0 and arguments.modules_every:
        raise HotloopError("--modules 0 times no layer: leave --modules-every out, or give --modules 1 or more")
    steps, seconds = arguments.after
    options = ScriptOptions(
        target=target,
        args=tuple(args),
        is_module=is_module,
        out=arguments.out,
        modules=1 if arguments.modules is None else arguments.modules,
        record=RecordOptions(
            budget=arguments.budget,
            hz=arguments.hz,
            after_steps=steps,
            after_s=seconds,
            for_s=arguments.seconds,
            functions=arguments.functions,
            ops=arguments.ops,
            warmup=arguments.warmup,
            modules_every=every,
        ),
    )
    path = claim_run(options)
    if path is not None and arguments.summary_every:
        start_printing(arguments.summary_every, path)
    run_script(options, path)


def _target(rest: list[str]) -> tuple[str, bool, list[str]]:
    if rest and rest[0] == "-m":
        if len(rest) < 2:
            raise HotloopError(f"-m needs the name of a module: {USAGE}")
        return rest[1], True, rest[2:]
    if not rest:
        raise HotloopError(f"no script to record: {USAGE}")
    return rest[0], False, rest[1:]


def _number(value: str, meaning: str, allowed: Callable[[float], bool], shown: str | None = None) -> float:
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not allowed(number):
        raise argparse.ArgumentTypeError(f"must be {meaning}, not {shown or value!r}")
    return number


def _positive(value: str) -> float:
    return _number(value, "a number above 0", lambda number: 0 < number < float("inf"))


def _not_negative(value: str) -> float:
    return _number(value, "a number from 0 on", lambda number: 0 <= number < float("inf"))


def _depth(value: str) -> int:
    return int(_number(value, "a whole number from 0 on", lambda number: number >= 0 and number % 1 == 0))


def _whole(value: str) -> int:
    return int(_number(value, "a whole number from 1 on", lambda number: number >= 1 and number % 1 == 0))


def _share(value: str) -> float:
    """Read `1%` or `0.01`."""
    percent = value.endswith("%")
    number = _number(
        value.removesuffix("%"), A_SHARE, lambda number: 0 < number <= (100 if percent else 1), shown=value
    )
    return number / 100 if percent else number


def _after(value: str) -> tuple[int, float]:
    """Read `500` (environment steps) or `10s` (seconds) as steps and seconds."""
    meaning = "environment steps (500) or seconds (10s)"
    number = _number(value.removesuffix("s"), meaning, lambda number: 0 <= number < float("inf"))
    if value.endswith("s"):
        return 0, number
    if number % 1:
        raise argparse.ArgumentTypeError(f"must be {meaning}, not {value!r}")
    return int(number), 0.0
