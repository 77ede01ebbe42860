"""What stands around a training loop and is not training. The pipelines keep their loops short by leaving it here.

That is: run directory, recording, limits, progress, evaluation, checkpoints, signals. Nothing in here touches the
state of the training: with or without it, the same seed gives the same weights.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from hotloop.clock import now_ns
from hotloop.errors import HotloopError
from hotloop.learn import checkpoint
from hotloop.pipelines import configuration
from hotloop.pipelines.counting import Counts, Episodes
from hotloop.pipelines.options import Options
from hotloop.pipelines.progress import Bar, line
from hotloop.pipelines.result import Result, peak_rss_bytes
from hotloop.pipelines.scalars import CSV, Scalars, check_tensorboard, check_wandb
from hotloop.pipelines.shipped import ALONE
from hotloop.pipelines.stopping import Stop
from hotloop.pipelines.timing import Laps, shares
from hotloop.spans import Phase

DEFAULT_SECONDS = 600.0
REPORT_NS = 500_000_000
ROW_EVERY = 2
"""Reports for one row of the curves: the bar moves twice a second, the curves have a point a second."""


class Trainee(Protocol):
    """What the shell must know of a training that is going on."""

    config: Any
    counts: Counts
    episodes: Episodes

    def scalars(self) -> dict[str, float | None]:
        """Return what to show besides counts and returns: loss, ε. Always the same names."""
        ...

    def evaluate(self, episodes: int) -> dict[str, float | None]:
        """Play greedy episodes on held-out seeds; return eval_return, eval_score, success_rate."""
        ...

    def state(self) -> tuple[checkpoint.Groups, dict[str, Any]]:
        """Return everything that a checkpoint needs: arrays, and what JSON holds."""
        ...


class Shell:
    """A run from its directory to its result; use as a context manager around the loop."""

    def __init__(self, pipeline: str, config: Any, options: Options) -> None:
        self.pipeline = pipeline
        self.timed = Laps()
        self.checkpoint = _to_resume(pipeline, options.resume) if options.resume else None
        self.config = self._resumed(config)
        self.run_dir = options.out or _default_path(pipeline)
        self._options = _with_limit(options)
        self._stop = Stop()
        self._bar = Bar(pipeline, quiet=options.quiet)
        self._open = ExitStack()
        self._evaluation: dict[str, float | None] = {}
        self._best: float | None = None
        self._saved: tuple[Path, float | None] | None = None
        self._has_begun = False
        self._made_dir = False
        self._error: BaseException | None = None

    def __enter__(self) -> Shell:
        self._started_ns = now_ns()
        if self._options.wandb:
            check_wandb()
        if self._options.tensorboard:
            check_tensorboard()
        self._made_dir = _make_empty(self.run_dir)
        if self._options.profile:
            from hotloop.record.options import RecordOptions
            from hotloop.record.session import record

            given = self._options
            looks = RecordOptions(functions=given.functions, ops=given.ops, warmup=given.warmup)
            settings = asdict(self.config) | {"pipeline": self.pipeline}
            session = self._open.enter_context(record(self.run_dir, options=looks, config=settings))
            self._open.callback(lambda: session.stop(_code_of(self._error) or self._stop.exit_code))
        self._open.callback(self._bar.end_line)
        self._open.enter_context(self._stop)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._error = error
        try:
            if isinstance(error, HotloopError) and self._has_begun:
                # Such as of collectors that cannot go on: what was learnt until then is worth keeping.
                self.say(f"hotloop: saved {self._save()} before it ended: go on with --resume {self.run_dir}")
        finally:
            self._open.close()
        if isinstance(error, HotloopError) and not self._has_begun:
            # A mistake in the call: nothing was trained, and nothing is left that looks like a run.
            _clear(self.run_dir, itself=self._made_dir)

    def say(self, text: str) -> None:
        """Tell the user something."""
        self._bar.say(text)

    @contextmanager
    def preparing(self, what: str) -> Iterator[None]:
        """Tell the user what is being built or compiled, and how long it took."""
        begun_ns = now_ns()
        self._bar.stage(what)
        yield
        self._bar.staged((now_ns() - begun_ns) / 1e9)

    def begin(self, trainee: Trainee) -> None:
        """Start the clock: everything is built and compiled."""
        self._has_begun = True
        self._trainee = trainee
        self.config = trainee.config
        configuration.write_toml(self.config, self.run_dir / "config.toml")
        settings = {"project": "hotloop", "config": asdict(self.config)} if self._options.wandb else None
        self._scalars = Scalars(self.run_dir, tensorboard=self._options.tensorboard, wandb=settings)
        self._open.callback(self._scalars.close)
        if self.checkpoint is not None:
            self._carry_over(self.checkpoint)
        self._bar.say(f"hotloop: training {self.pipeline} with kernel {self.config.kernel} into {self.run_dir}")
        self._bar.start()
        self._open.callback(self._bar.stop)
        self._begun_ns = self._reported_ns = now_ns()
        self._begun = self._reported = self._evaluated = self._checkpointed = replace(trainee.counts)
        self._summed = trainee.counts.env_steps
        self._laps = self.timed.totals_ns()
        self._reports = 0

    def going(self) -> bool:
        """Say whether the loop should take another step."""
        return not self._stopped_by()

    def after_step(self) -> None:
        """Report, evaluate and save, where it is time to."""
        counts, options = self._trainee.counts, self._options
        if _crossed(self._evaluated.env_steps, counts.env_steps, options.eval_every):
            self._evaluated = replace(counts)
            self._evaluate()
        if _crossed(self._checkpointed.env_steps, counts.env_steps, options.checkpoint_every):
            self._checkpointed = replace(counts)
            self._save()
        if now_ns() - self._reported_ns >= REPORT_NS:
            with self.timed("log"):
                self._report()
        if _crossed(self._summed, counts.env_steps, options.profile_summary_every):
            self._summed = counts.env_steps
            self.say(f"{self.pipeline}: {line(self._numbers(), self._elapsed_s())}")

    def finish(self) -> Result:
        """Evaluate and save a last time; return the result."""
        stopped_by = self._stopped_by() or "end"
        trained_s = self._elapsed_s()
        if not self._stop.asked:
            self._evaluate()
        self._report(row=True)
        path = self._save()
        result = self._result(stopped_by, trained_s, path)
        (self.run_dir / "result.json").write_text(result.as_json() + "\n", encoding="utf-8")
        return result

    def _resumed(self, config: Any) -> Any:
        """Return the configuration of the checkpoint, which the given one must equal; its kernel is kept."""
        if self.checkpoint is None:
            return config
        theirs = self.checkpoint.meta["config"]
        configuration.check_same(config, theirs, self.checkpoint.path)
        return replace(config, kernel=theirs["kernel"]) if config.kernel == "auto" else config

    def _carry_over(self, source: checkpoint.Checkpoint) -> None:
        """Take the earlier run's curve and best checkpoint along, so that this run directory is whole."""
        env_steps, folder = source.meta["counts"]["env_steps"], source.path.resolve().parent
        self._best = source.meta["best"]
        self._scalars.carry_on(folder.parent / CSV, env_steps)
        best = (folder / checkpoint.BEST).resolve()
        mine = checkpoint.step_path(self.run_dir, env_steps).parent / best.name
        if best.is_dir() and best.name <= checkpoint.step_path(self.run_dir, env_steps).name:
            shutil.copytree(best, mine)
            checkpoint.mark_best(mine)

    def _stopped_by(self) -> str | None:
        if self._stop.asked:
            return self._stop.asked.name
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
        done = ((counts.env_steps, options.steps), (counts.episodes, options.episodes),
                (self._elapsed_s(), options.seconds))  # fmt: skip
        return max(value / limit for value, limit in done if limit is not None)

    def _report(self, row: bool = False) -> None:
        numbers = self._numbers()
        self._bar.show(self._share_done(), self._elapsed_s(), numbers)
        self._reported_ns, self._reported, self._laps = now_ns(), replace(self._trainee.counts), self.timed.totals_ns()
        if row or self._reports % ROW_EVERY == 0:
            named = {name: value for name, value in numbers.items() if name != "env_steps"}
            self._scalars.write(self._trainee.counts.env_steps, named)
        self._reports += 1

    def _numbers(self) -> dict[str, float | None]:
        """Return the present numbers: totals, rates since the last report, means, shares of the phases."""
        counts, before = self._trainee.counts, self._reported
        elapsed_ns = max(now_ns() - self._reported_ns, 1)
        phases = shares(self.timed.totals_ns(), self._laps, elapsed_ns)
        return {
            "env_steps": counts.env_steps,
            "updates": counts.updates,
            "episodes": counts.episodes,
            "seconds": self._elapsed_s(),
            "env_steps_per_s": (counts.env_steps - before.env_steps) * 1e9 / elapsed_ns,
            "updates_per_s": (counts.updates - before.updates) * 1e9 / elapsed_ns,
            **self._trainee.episodes.means(),
            **self._trainee.scalars(),
            "eval_return": self._evaluation.get("eval_return"),
            "eval_score": self._evaluation.get("eval_score"),
            "success_rate": self._evaluation.get("success_rate"),
            **{f"share.{name}": value for name, value in phases.items()},
        }

    def _evaluate(self) -> None:
        if not self._options.eval_episodes:
            return
        with self.timed("evaluate", Phase.EVALUATE):
            self._evaluation = self._trainee.evaluate(self._options.eval_episodes)
        score = self._evaluation["eval_score"] or 0.0
        if self._best is None or score > self._best:
            self._best = score
            checkpoint.mark_best(self._save())
        self.say(
            f"{self.pipeline}: {self._options.eval_episodes} greedy episodes at {self._trainee.counts.env_steps:,} "
            f"steps: score {score:.2f} (best {self._best:.2f})"
        )

    def _save(self) -> Path:
        counts = self._trainee.counts
        path = checkpoint.step_path(self.run_dir, counts.env_steps)
        if (path, self._best) == self._saved:
            return path  # nothing has happened since
        with self.timed("checkpoint", Phase.CHECKPOINT):
            groups, meta = self._trainee.state()
            meta |= {"pipeline": self.pipeline, "config": asdict(self.config), "best": self._best}
            checkpoint.write(path, groups, meta | {"counts": counts.as_dict()})
            checkpoint.keep_last(self.run_dir, self._options.keep)
        self._saved = (path, self._best)
        return path

    def _result(self, stopped_by: str, trained_s: float, path: Path) -> Result:
        counts, means = self._trainee.counts, self._trainee.episodes.means()
        warmup_s = (self._begun_ns - self._started_ns) / 1e9
        return Result(
            pipeline=self.pipeline,
            **counts.as_dict(),
            steps_per_episode=means["length_mean"],
            seconds=warmup_s + self._elapsed_s(),
            warmup_seconds=warmup_s,
            env_steps_per_s=(counts.env_steps - self._begun.env_steps) / max(trained_s, 1e-9),
            updates_per_s=(counts.updates - self._begun.updates) / max(trained_s, 1e-9),
            return_mean=means["return_mean"],
            return_last100=means["return_last100"],
            score_mean=means["score_mean"],
            score_last100=means["score_last100"],
            score_best=means["score_best"],
            eval_return=self._evaluation.get("eval_return"),
            eval_score=self._evaluation.get("eval_score"),
            best_eval_score=self._best,
            success_rate=self._evaluation.get("success_rate"),
            kernel=self.config.kernel,
            stopped_by=stopped_by,
            exit_code=self._stop.exit_code,
            peak_rss_bytes=peak_rss_bytes(),
            run_dir=str(self.run_dir),
            checkpoint=str(path),
        )


def _to_resume(pipeline: str, path: Path) -> checkpoint.Checkpoint:
    found = checkpoint.read(checkpoint.find(path))
    theirs = found.meta.get("pipeline")
    if theirs != pipeline:
        raise HotloopError(f"{path} is of pipeline {theirs}, not {pipeline}: `hotloop train {theirs} --resume {path}`")
    if found.meta.get(ALONE):
        raise HotloopError(f"{path} holds an agent alone, without replay and optimiser: resume the run it is from")
    return found


def _default_path(pipeline: str) -> Path:
    from hotloop.record.session import default_path

    return default_path([pipeline])


def _make_empty(path: Path) -> bool:
    """Make a run directory; return whether it was not there before."""
    there = path.exists()
    if there and (not path.is_dir() or any(path.iterdir())):
        raise HotloopError(f"{path} is not an empty directory: choose another with --out, or remove it")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HotloopError(f"cannot make {path} ({error.strerror or error}): choose another with --out") from error
    return not there


def _code_of(error: BaseException | None) -> int:
    """Return the exit code of a training that an error ends; 0 for none."""
    from hotloop.record.session import exit_code_of

    # A Ctrl-C that comes while compiled code runs is the cause of a SystemError.
    interrupted = isinstance(error, SystemError) and isinstance(error.__cause__, KeyboardInterrupt)
    return exit_code_of(KeyboardInterrupt() if interrupted else error)


def _clear(path: Path, itself: bool) -> None:
    """Remove what was written into a run directory, and the directory itself if it was made for the run."""
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
    """Say whether a multiple of `every` lies in (before, now]."""
    return every > 0 and now // every > before // every
