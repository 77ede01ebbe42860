"""`hotloop train PIPELINE [flags]`: trains a pipeline. Its configuration dataclass is the command line.

Flags override the file of --config, which overrides the preset. With --resume, settings come from the checkpoint, and
only flags that do not change the training may differ.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass, replace
from pathlib import Path
from types import ModuleType

from hotloop.cli.output import writing
from hotloop.cli.recording import ProfileOptions, TrainingRecording
from hotloop.counters import COUNTERS
from hotloop.errors import HotloopError
from hotloop.escaping import printable
from hotloop.files import silence
from hotloop.training.registry import PIPELINES, pipeline
from hotloop.training.run import configuration
from hotloop.training.run.config_checks import Config, require_seed, require_training
from hotloop.training.run.options import Options
from hotloop.training.run.result import Result

USAGE = "hotloop train PIPELINE [flags]"
ALIASES = {
    "--timesteps": "--steps",
    "--enable-profiling": "--profile",
    "--profiling-report": "--profile-report",
    "--profiling-summary-freq": "--profile-summary-every",
    "--prioritized": "--prioritised",
}
"""Flag names of the profiler study, and another spelling."""
DEFAULT_PRESET = "fast"


@dataclass(frozen=True, slots=True)
class Source:
    """Where settings come from, and how the result is shown."""

    preset: str = DEFAULT_PRESET
    """Initial settings; `hotloop train` lists the presets."""
    config: Path | None = None
    """TOML file of settings, such as the config.toml of a run directory."""
    json: bool = False
    """Print the result as one JSON object to stdout."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Do nothing: the pipeline's configuration defines the arguments."""


def split(parser: argparse.ArgumentParser, words: list[str]) -> tuple[list[str], list[str]]:
    """Pass all words to the pipeline."""
    return [], words


def run(arguments: argparse.Namespace) -> int:
    """Train; return the exit code: 0, 128 + the number of the signal that stopped it, or 2 if it was not saved."""
    words: list[str] = arguments.rest
    if not words:
        print(_listing())
        return 0
    if words[0] in ("-h", "--help"):
        print(f"usage: {USAGE}\n\n{_listing()}")
        return 0
    if words[0].startswith("-"):
        raise HotloopError(f"the pipeline comes first, not {words[0]!r}: {USAGE}, with one of {', '.join(PIPELINES)}")
    if words[0] in PIPELINES and not {"-h", "--help"} & set(words):
        require_training()
    config, options, profile, source = parse(words[0], words[1:])
    if profile.profile_report is not None:
        _check_report(profile.profile_report, options.out)
    recording = TrainingRecording(profile, options.quiet) if profile.profile else None
    result = pipeline(words[0]).train(config, replace(options, ends_process=arguments.owns_process), recording)
    lost = _print_result(result, source.json, options.quiet)
    if profile.profile_report is not None:
        _write_report(Path(result.run_dir), profile.profile_report)
    # A closed terminal or pipe does not matter to the run, unless a program waits for its JSON.
    if lost is not None and source.json and not result.exit_code:
        raise lost
    return result.exit_code


def _print_result(result: Result, as_json: bool, quiet: bool) -> OSError | None:
    """Print the result; return the error if it cannot be printed."""
    try:
        if as_json:
            print(result.as_json(), flush=True)
        elif not quiet:
            print(_ending(result), flush=True)
    except OSError as error:
        silence(sys.stdout)
        return error
    return None


def parse(name: str, words: list[str]) -> tuple[Config, Options, ProfileOptions, Source]:
    """Read the flags of a pipeline: its configuration, the options of the run and of its recording, and the rest."""
    import tyro

    module = pipeline(name)
    words = [_without_alias(word) for word in words]
    config = _beginning(name, module, words)

    parts = (
        ("training", module.Config, config),
        ("run", Options, getattr(module, "OPTIONS", Options())),
        ("profiling", ProfileOptions, ProfileOptions()),
        ("settings", Source, Source()),
    )
    call_type = make_dataclass("Call", [(part, kind, field(default=value)) for part, kind, value in parts], frozen=True)
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            flat = tyro.conf.OmitArgPrefixes[call_type]
            call = tyro.cli(flat, args=words, prog=f"hotloop train {name}", description=PIPELINES[name])
    except SystemExit as end:
        if end.code:
            raise HotloopError(f"{_one_line(complaint.getvalue())}: see `hotloop train {name} --help`") from None
        raise
    require_seed(call.training)
    return call.training, call.run, call.profiling, call.settings


def _beginning(name: str, module: ModuleType, words: list[str]) -> Config:
    """Return the configuration that the flags change: from the checkpoint, or from preset and file."""
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for flag in ("--preset", "--config", "--resume"):
        early.add_argument(flag)
    try:
        found, _ = early.parse_known_args(words)
    except argparse.ArgumentError as error:
        raise HotloopError(f"{error}: see `hotloop train {name} --help`") from error
    preset = found.preset or DEFAULT_PRESET
    if preset not in module.PRESETS:
        raise HotloopError(f"unknown preset {preset!r} of {name}: use one of {', '.join(module.PRESETS)}")
    config = module.PRESETS[preset][0]
    if found.resume is not None:
        from hotloop.training.run.saved_training import read_saved

        for flag in ("preset", "config"):
            if getattr(found, flag) is not None:
                raise HotloopError(f"--resume takes its settings from the checkpoint: leave --{flag} out")
        saved = read_saved(Path(found.resume), only=[])
        if saved.pipeline == name:  # otherwise TrainingRun raises an error
            config = configuration.with_settings(config, saved.config, str(saved.path))
    elif found.config is not None:
        path = Path(found.config)
        config = configuration.with_settings(config, configuration.read_toml(path), f"--config {path}")
    return config


def _without_alias(word: str) -> str:
    flag, equals, value = word.partition("=")
    flag = flag.replace("_", "-") if flag.startswith("--") else flag
    return f"{ALIASES.get(flag, flag)}{equals}{value}"


def _one_line(complaint: str) -> str:
    """Return tyro's error, a box drawn with lines or in ASCII, as one line with the suggested flag."""
    lines = [line.strip("│ ") for line in complaint.splitlines() if not line.startswith(("╭", "╰"))]
    blocks: list[list[str]] = [[]]
    for line in filter(None, lines):
        if set(line) <= set("─-"):
            blocks.append([])
        else:
            blocks[-1].append(line)
    # In ASCII the title stands in a block of its own.
    wrong, *more = blocks if "╭" in complaint else blocks[1:] or blocks
    meant = [line.split()[0] for block in more if block[:1] == ["Perhaps you meant:"] for line in block[1:]]
    hint = f" (did you mean {meant[0]}?)" if meant else ""
    return " ".join(wrong).rstrip(".") + hint


def _listing() -> str:
    lines = ["Pipelines and their presets:", ""]
    for name, what in PIPELINES.items():
        lines += [f"  {name}   {what}"]
        lines += [f"      --preset {preset:<10} {about}" for preset, (_, about) in pipeline(name).PRESETS.items()]
        lines += [""]
    return "\n".join([*lines, "Next: hotloop train dqn-snake --seconds 60     (flags: hotloop train dqn-snake --help)"])


def _ending(result: Result) -> str:
    score = "" if result.score_last100 is None else f", score of the last 100 episodes {result.score_last100:.2f}"
    greedy = "" if result.eval_score is None else f", greedy {result.eval_score:.2f}"
    saved = "no checkpoint was saved" if result.checkpoint is None else f"saved {result.checkpoint}"
    command = ["hotloop", "train", result.pipeline, "--resume"] if result.exit_code else ["hotloop", "play"]
    next_step = shlex.join([*command, result.run_dir])
    if result.checkpoint is None:
        next_step = f"hotloop train {result.pipeline} --out DIR     (and do what the warning says)"
    took = f"in {result.seconds:.1f} s, {result.warmup_seconds:.1f} s of them to prepare"
    totals = {name: getattr(result, name) for name in COUNTERS}
    done = f"{_counted(totals)} {took}{score}{greedy}"
    if result.counts["env_steps"] != result.env_steps:
        done = f"{_counted(result.counts)} {took}; {_counted(totals)} in all{score}{greedy}"
    return "\n".join(map(printable, [done, saved, f"Next: {next_step}"]))


def _counted(counts: Mapping[str, float | None]) -> str:
    """Return the counts as text; frames only if they differ from steps."""
    frames = f" ({counts['frames']:,} frames)" if counts["frames"] != counts["env_steps"] else ""
    return f"{counts['env_steps']:,} steps{frames}, {counts['updates']:,} updates, {counts['episodes']:,} episodes"


def _check_report(path: Path, out: Path | None) -> None:
    """Reject a path that the report cannot be written to, before the training starts."""
    folder = path.parent
    if out is not None and folder.absolute() == out.absolute():
        return  # the run directory: made, or refused, when the training begins
    if not folder.is_dir():
        raise HotloopError(f"--profile-report {path}: there is no directory {folder}; make it, or choose another file")
    if path.is_dir():
        raise HotloopError(f"--profile-report {path} is a directory: name a file")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise HotloopError(f"--profile-report {path} may not be written: choose another file")


def _write_report(run_dir: Path, path: Path) -> None:
    from hotloop.profiling.diagnosis import explain
    from hotloop.profiling.report import json, view
    from hotloop.profiling.trace.load import load

    trace = load(run_dir)
    with writing(path):
        json.write(json.detailed(view.build(trace, explain(trace)), trace), path)
