"""Progress: a bar with two lines of numbers in a terminal, plain lines elsewhere.

Always to stderr, because stdout belongs to --json. There is no thread: `TrainingRun` calls it after a step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hotloop.escaping import printable_lines
from hotloop.numbers import count, percent, percents, rate, seconds

PLAIN_EVERY_S = 5.0
"""Interval of plain lines, so that a log file stays readable."""
BAR_WIDTH = 30

Numbers = Mapping[str, float | None]


class Bar:
    """Shows the progress and speed of a run. `show` is called about twice a second."""

    def __init__(self, name: str, *, quiet: bool) -> None:
        self._quiet = quiet
        self._lost = False
        self._name = name
        self._next_plain_s = 0.0
        self._waiting = ""
        self._staged = False
        self._live: Live | None = None
        if sys.stderr.isatty() and not quiet:
            self._live = Live(console=Console(stderr=True, highlight=False), auto_refresh=False)

    def say(self, text: str) -> None:
        """Print a line, or a table of lines, above the bar."""
        if not self._quiet:
            self.warn(text)

    def warn(self, text: str) -> None:
        """Print a line above the bar, also if the bar is quiet."""
        self.end_line()
        text = printable_lines(text)
        if self._live is not None and self._live.is_started:
            console = self._live.console
            self._write(lambda: console.print(Text(text)))
        else:
            self._print(f"{text}\n")

    def stage(self, what: str) -> None:
        """Show what is being prepared: all stages on one line, each as it starts."""
        if not self._quiet:
            self._print(f", {what}" if self._staged else f"hotloop: preparing {what}")
            self._staged = True

    def staged(self, took_s: float) -> None:
        """Show how long the stage took."""
        if not self._quiet:
            self._print(f" ({took_s:.1f} s)")

    def end_line(self) -> None:
        """End the line of stages, if there is one."""
        if self._staged:
            self._staged = False
            self._print("\n")

    def start(self) -> None:
        """Start to show the bar."""
        if self._live is not None:
            self._write(self._live.start)

    def _print(self, text: str) -> None:
        self._write(lambda: print(text, end="", file=sys.stderr, flush=True))

    def _write(self, write: Callable[[], object], *, also_if_lost: bool = False) -> None:
        """Write to stderr. After the first failure, such as a closed terminal or a full disk, show nothing more."""
        if self._lost and not also_if_lost:
            return
        try:
            write()
        except OSError:
            self._lost = self._quiet = True

    def show(self, done: float, elapsed_s: float, numbers: Numbers) -> None:
        """Show the progress: share of the limit, seconds since the first step, and the numbers of the curves."""
        done = min(done, 1.0)
        live = self._live
        if live is not None:
            head = Table.grid(padding=(0, 1))
            bar = ProgressBar(total=1.0, completed=done, width=BAR_WIDTH)
            head.add_row(Text(self._name), bar, f"{percent(done)}  {seconds(elapsed_s)}")
            shown = Group(head, Text(rates(numbers)), Text(phases(numbers), style="dim"))
            self._write(lambda: live.update(shown, refresh=True))
        elif not self._quiet:
            self._waiting = f"{self._name} {percent(done)}: {line(numbers, elapsed_s)}"
            if elapsed_s >= self._next_plain_s:
                self._next_plain_s = elapsed_s + PLAIN_EVERY_S
                self.flush()

    def flush(self) -> None:
        """Print the last plain line, if it was held back. The run has ended."""
        if self._waiting:
            self.say(self._waiting)
            self._waiting = ""

    def stop(self) -> None:
        """Leave the terminal as it was."""
        if self._live is not None:
            # Even if stderr failed, because this restores sys.stdout.
            self._write(self._live.stop, also_if_lost=True)


def line(numbers: Numbers, elapsed_s: float) -> str:
    """Return the most important numbers in one line."""
    return ", ".join(part for part in (seconds(elapsed_s), rates(numbers), phases(numbers)) if part)


def rates(numbers: Numbers) -> str:
    """Return steps, current rates, means of the last 100 episodes, and the level.

    A count that did not advance since the last report has no rate: an evaluation may have taken all the time.
    """
    parts = [f"{count(numbers['env_steps'] or 0)} steps"]
    for name, label in (("env_steps_per_s", "steps/s"), ("updates_per_s", "updates/s")):
        value = numbers[name]
        if value:
            parts.append(f"{rate(value)} {label}")
    for name, label in (("score_last100", "score"), ("return_last100", "return"), ("epsilon", "ε")):
        value = numbers.get(name)
        if value is not None:
            parts.append(f"{label} {value:.2f}")
    level = numbers.get("level")
    if level is not None:
        parts.append(f"level {level:g}")
    return ", ".join(parts)


def phases(numbers: Numbers) -> str:
    """Return the current shares of the phases, largest first."""
    shares = {name[6:]: value for name, value in numbers.items() if name.startswith("share.") and value is not None}
    shown = zip(shares, percents(list(shares.values())), strict=True)
    return " ".join(f"{name} {value}%" for name, value in sorted(shown, key=lambda each: -each[1]) if value)
