"""Everything around a training loop: run directory, recording, limits, progress, evaluation, checkpoints, signals.

This keeps the loops of the pipelines short. Nothing here changes the state of the training: the same seed gives the
same weights.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from hotloop.clock import now_ns
from hotloop.counters import steps_per_episode
from hotloop.default_run_path import default_path
from hotloop.errors import HotloopError, Interrupted, exit_code_of, interrupt_in
from hotloop.files import make_private, resolved, write_whole
from hotloop.json_types import Json
from hotloop.phases import Phase
from hotloop.training.run import checkpoint, configuration
from hotloop.training.run.checkpoint_saver import Saver, not_finite, reason_of
from hotloop.training.run.config_checks import Config, require_device, torch_threads
from hotloop.training.run.counts import Counts, Episodes
from hotloop.training.run.curves import CSV, Scalars, check_tensorboard, check_wandb
from hotloop.training.run.options import Options
from hotloop.training.run.phase_timer import Interval, Laps
from hotloop.training.run.progress import Bar
from hotloop.training.run.recording import NoRecording, Recording, RunInfo
from hotloop.training.run.result import Result, peak_rss_bytes
from hotloop.training.run.saved_training import Saved, read_saved
from hotloop.training.run.stop_signals import Stop
from hotloop.training.state_checks import text_in

DEFAULT_SECONDS = 600.0
REPORT_NS = 500_000_000
ROW_EVERY = 2
"""The curves get a row at every second report, that is, one per second."""
NOT_SAVED = 2
"""Exit code of a run whose last checkpoint could not be written, or would hold weights that are not finite."""
ConfigT = TypeVar("ConfigT", bound=Config)
AgentT = TypeVar("AgentT")
ConfigT_co = TypeVar("ConfigT_co", bound=Config, covariant=True)


class Trainee(Protocol[ConfigT_co]):
    """What a `TrainingRun` needs from the training inside it."""

    counts: Counts
    episodes: Episodes

    @property
    def config(self) -> ConfigT_co:
        """The configuration, with the kernel that was chosen."""
        ...

    def scalars(self) -> dict[str, float | None]:
        """Return what to show besides counts and returns: loss, ε. Always the same names."""
        ...

    def evaluate(self, episodes: int) -> dict[str, float | None]:
        """Play greedy episodes on held-out seeds; return eval_return, eval_score, success_rate."""
        ...

    def state(self) -> tuple[checkpoint.Groups, dict[str, Json]]:
        """Return everything that a checkpoint needs: arrays and JSON values."""
        ...


class TrainingRun(Generic[ConfigT]):
    """A run from its directory to its result; use as a context manager around the loop."""

    def __init__(self, pipeline: str, config: ConfigT, options: Options, recording: Recording | None = None) -> None:
        configuration.check_finite(config)
        self.pipeline = pipeline
        self.timed = Laps()
        self.checkpoint = _to_resume(pipeline, options.resume) if options.resume else None
        self.config = self._resumed(config)
        self.run_dir = options.out or default_path([pipeline])
        self._options = _with_limit(options)
        self._stop = Stop(options.ends_process)
        self._bar = Bar(pipeline, quiet=options.quiet)
        self._saver = Saver(self.run_dir, options.keep, self.warn)
        self._open = ExitStack()
        self._recording = recording or NoRecording()
        self._evaluation: dict[str, float | None] = dict.fromkeys(("eval_return", "eval_score", "success_rate"))
        self._saved: tuple[int, float | None] | None = None
        self._exit_code = 0
        self._has_begun = False
        self._made_dir = False
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        self._started_ns = now_ns()
        if self._options.wandb:
            check_wandb()
        if self._options.tensorboard:
            check_tensorboard()
        self._made_dir = _make_empty(self.run_dir)
        # Entered first, left last: a second signal must not end the run while its recording is completed.
        self._open.enter_context(self._stop)
        before = self.checkpoint.counts.as_dict() if self.checkpoint is not None else None
        self._recording.start(RunInfo(self.pipeline, self.run_dir, asdict(self.config), before, self.say))
        self._open.callback(lambda: self._recording.stop(_code_of(self._error) or self._exit_code))
        self._open.callback(self._bar.end_line)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._error = error
        try:
            if isinstance(error, HotloopError) and self._has_begun:
                self._save_before_end(error)
        finally:
            self._open.close()
        if isinstance(error, HotloopError) and not self._has_begun:
            # A wrong call: nothing was trained, so leave nothing that looks like a run.
            _clear(self.run_dir, itself=self._made_dir)

    def _save_before_end(self, error: HotloopError) -> None:
        """Keep what was learned before an error ends the run, such as workers that cannot be replaced."""
        wrong = not_finite(self._trainee.state()[0])
        if wrong is not None:  # the error is a consequence of this
            raise HotloopError(self._saver.describe_divergence(self._trainee.counts.env_steps, wrong)) from error
        if self._save():
            self.say(f"hotloop: saved {self._saver.last} before it ended: continue with --resume {self.run_dir}")
            self._write_row(self._numbers())

    def say(self, text: str) -> None:
        """Print a line, unless the run is quiet."""
        self._bar.say(text)

    def warn(self, text: str) -> None:
        """Print a warning, even if the run is quiet."""
        self._bar.warn(f"hotloop: warning: {text}")

    @contextmanager
    def preparing(self, what: str) -> Iterator[None]:
        """Show what is being built or compiled, and how long that took."""
        begun_ns = now_ns()
        self._bar.stage(what)
        yield
        self._bar.staged((now_ns() - begun_ns) / 1e9)

    def begin(self, trainee: Trainee[ConfigT]) -> None:
        """Start the clock. Everything is built and compiled."""
        self._trainee = trainee
        self.config = trainee.config
        settings = {"project": "hotloop", "config": asdict(self.config)} if self._options.wandb else None
        try:
            configuration.write_toml(self.config, self.run_dir / "config.toml")
            self._scalars = Scalars(self.run_dir, tensorboard=self._options.tensorboard, wandb=settings, warn=self.warn)
        except OSError as error:
            raise HotloopError(
                f"cannot write to {self.run_dir} ({reason_of(error)}): make room, or choose another with --out"
            ) from error
        self._has_begun = True
        self._open.callback(self._scalars.close)
        if self.checkpoint is not None:
            self._carry_over(self.checkpoint)
        self._bar.say(f"hotloop: training {self.pipeline} with kernel {self.config.kernel} into {self.run_dir}")
        self._bar.start()
        self._open.callback(self._bar.stop)
        self._begun = self._evaluated = self._checkpointed = replace(trainee.counts)
        self._recording.begin(trainee.counts.env_steps)
        self._reports = 0
        self._interval = Interval(trainee.counts, self.timed)
        self._begun_ns = self._interval.began_ns

    def going(self) -> bool:
        """Return whether the loop should take another step."""
        return not self._stopped_by()

    def after_step(self) -> None:
        """Report, evaluate and save if due."""
        counts, options = self._trainee.counts, self._options
        if _crossed(self._evaluated.env_steps, counts.env_steps, options.eval_every):
            self._evaluated = replace(counts)
            self._evaluate()
        if _crossed(self._checkpointed.env_steps, counts.env_steps, options.checkpoint_every):
            self._checkpointed = replace(counts)
            self._save()
        if now_ns() - self._interval.began_ns >= REPORT_NS:
            with self.timed("log"):
                self._report()
        if self._recording.summary_due(counts.env_steps):
            with self.timed("log"):
                self._recording.print_summary()

    def finish(self) -> Result:
        """Evaluate and save one last time; return the result."""
        stopped_by = self._stopped_by() or "end"
        trained_s = self._elapsed_s()
        if self._interval.advanced:
            with self.timed("log"):
                self._report()
        self._bar.flush()
        self._recording.finish()
        if not self._stop.signal:
            self._evaluate()
        with self.timed("log"):
            self._write_row(self._numbers())
        # If it is not saved, a warning has said why. What was learned since the newest checkpoint is lost.
        self._exit_code = self._stop.exit_code if self._save(ends=True) else NOT_SAVED
        result = self._result(stopped_by, trained_s)
        try:
            write_whole(self.run_dir / "result.json", f"{result.as_json()}\n".encode())
        except OSError as error:
            self.warn(f"cannot write {self.run_dir / 'result.json'} ({reason_of(error)}): the result is only printed")
        return result

    def _resumed(self, config: ConfigT) -> ConfigT:
        """Return the configuration with the kernel of the checkpoint. Otherwise the two must be equal."""
        if self.checkpoint is None:
            return config
        theirs = self.checkpoint.config
        configuration.check_same(config, theirs, self.checkpoint.path)
        lanes = getattr(config, "lanes", getattr(config, "envs", None))
        if lanes is not None:
            self.checkpoint.check_lanes(lanes)
        return replace(config, kernel=text_in(theirs, "kernel")) if config.kernel == "auto" else config

    def _carry_over(self, source: Saved) -> None:
        """Copy the earlier run's curve, the checkpoint that is resumed, and the best one into this run."""
        self._saver.best = source.best
        self._scalars.carry_on(resolved(source.path).parent.parent / CSV, source.counts.env_steps)
        self._saver.continue_from(source.path, source.counts.env_steps)

    def _stopped_by(self) -> str | None:
        if self._stop.signal:
            return self._stop.signal.name
        counts, options = self._trainee.counts, self._options
        if options.steps is not None and counts.env_steps >= options.steps:
            return "steps"
        if options.episodes is not None and counts.episodes >= options.episodes:
            return "episodes"
        if options.seconds is not None and self._elapsed_s() >= options.seconds:
            return "seconds"
        return None

    def _elapsed_s(self) -> float:
        return (now_ns() - self._begun_ns) / 1e9

    def _share_done(self) -> float:
        counts, options = self._trainee.counts, self._options
        done = (counts.env_steps, counts.episodes, self._elapsed_s())
        limits = (options.steps, options.episodes, options.seconds)
        return max(value / limit for value, limit in zip(done, limits, strict=True) if limit is not None)

    def _report(self) -> None:
        numbers = self._numbers()
        self._interval.restart()
        self._bar.show(self._share_done(), self._elapsed_s(), numbers)
        if self._reports % ROW_EVERY == 0:
            self._write_row(numbers)
        self._reports += 1

    def _write_row(self, numbers: dict[str, float | None]) -> None:
        named = {name: value for name, value in numbers.items() if name != "env_steps"}
        self._scalars.write(self._trainee.counts.env_steps, named)

    def _numbers(self) -> dict[str, float | None]:
        return {
            **self._trainee.counts.as_row(),
            "seconds": self._elapsed_s(),
            **self._interval.numbers(),
            **self._trainee.episodes.means(),
            **self._trainee.scalars(),
            **self._evaluation,
        }

    def _evaluate(self) -> None:
        if not self._options.eval_episodes:
            return
        with self.timed("evaluate", Phase.EVALUATE):
            self._evaluation = self._trainee.evaluate(self._options.eval_episodes)
        score = self._evaluation["eval_score"] or 0.0
        self._saver.offer(score, self._save)
        self.say(
            f"{self.pipeline}: {self._options.eval_episodes} greedy episodes at {self._trainee.counts.env_steps:,} "
            f"steps: score {score:.2f} (best {max(score, self._saver.best or score):.2f})"
        )

    def _save(self, ends: bool = False) -> bool:
        """Write a checkpoint; return whether this step has one."""
        counts = self._trainee.counts
        if (counts.env_steps, self._saver.best) == self._saved:
            return True  # nothing changed since
        with self.timed("checkpoint", Phase.CHECKPOINT):
            groups, meta = self._trainee.state()
            meta |= {"pipeline": self.pipeline, "config": asdict(self.config), "best": self._saver.best}
            if not self._saver.save(counts.env_steps, groups, meta | {"counts": counts.as_dict()}, ends):
                return False
        self._saved = (counts.env_steps, self._saver.best)
        return True

    def _result(self, stopped_by: str, trained_s: float) -> Result:
        counts, means = self._trainee.counts, self._trainee.episodes.means()
        here = counts.since(self._begun)
        reported: dict[str, Any] = {name: mean for name, mean in means.items() if not name.startswith("length")}
        reported |= self._evaluation
        warmup_s = (self._begun_ns - self._started_ns) / 1e9
        return Result(
            pipeline=self.pipeline,
            **counts.as_dict(),
            steps_per_episode=steps_per_episode(counts.env_steps, counts.episodes),
            counts=here.as_row(),
            seconds=warmup_s + self._elapsed_s(),
            warmup_seconds=warmup_s,
            env_steps_per_s=here.env_steps / max(trained_s, 1e-9),
            updates_per_s=here.updates / max(trained_s, 1e-9),
            **reported,
            best_eval_score=self._saver.best,
            kernel=self.config.kernel,
            stopped_by=stopped_by,
            exit_code=self._exit_code,
            peak_rss_bytes=peak_rss_bytes(),
            run_dir=str(self.run_dir),
            checkpoint=None if self._saver.last is None else str(self._saver.last),
        )


@contextmanager
def opened(
    pipeline: str,
    config: ConfigT,
    options: Options,
    recording: Recording | None,
    agent: Callable[[ConfigT], AgentT],
) -> Iterator[tuple[TrainingRun[ConfigT], AgentT]]:
    """Open a run, with torch set up, and make its agent first: it rejects settings before anything is written."""
    require_device(config.device)
    with torch_threads(config.threads):
        made = agent(config)
        with TrainingRun(pipeline, config, options, recording) as run:
            yield run, made


def _to_resume(pipeline: str, path: Path) -> Saved:
    found = read_saved(path)
    if found.pipeline != pipeline:
        command = shlex.join(["hotloop", "train", found.pipeline, "--resume", str(path)])
        raise HotloopError(f"{path} is of pipeline {found.pipeline}, not {pipeline}: `{command}`")
    if found.agent_only:
        raise HotloopError(f"{path} holds only an agent, without replay and optimiser: resume the run it is from")
    checkpoint.check_best(resolved(found.path).parent)
    return found


def _make_empty(path: Path) -> bool:
    """Create a run directory; return whether it is new."""
    there = path.exists()
    if there and (not path.is_dir() or any(path.iterdir())):
        raise HotloopError(f"{path} is not an empty directory: choose another with --out, or remove it")
    try:
        make_private(path)
    except OSError as error:
        raise HotloopError(f"cannot make {path} ({error.strerror or error}): choose another with --out") from error
    return not there


def _code_of(error: BaseException | None) -> int:
    cause = interrupt_in(error) or error
    return cause.exit_code if isinstance(cause, Interrupted) else exit_code_of(cause)


def _clear(path: Path, itself: bool) -> None:
    """Empty a run directory, or remove it if it was created for the run."""
    if itself:
        shutil.rmtree(path, ignore_errors=True)
        return
    for each in path.iterdir():
        if each.is_dir():
            shutil.rmtree(each, ignore_errors=True)
        else:
            each.unlink(missing_ok=True)


def _with_limit(options: Options) -> Options:
    limited = any(limit is not None for limit in (options.steps, options.episodes, options.seconds))
    return options if limited else replace(options, seconds=DEFAULT_SECONDS)


def _crossed(before: int, now: int, every: int) -> bool:
    """Return whether a multiple of `every` lies in (before, now]."""
    return every > 0 and now // every > before // every
