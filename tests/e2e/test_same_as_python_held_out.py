"""`hotloop run` behaves like `python` on scripts written by someone who had not seen the code."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.same_as_python.harness import FOLDER, Case, differences, find_cases

FRAMES = "hooked calls have an extra frame, visible to tracers, debuggers and recursion limits"
REPLACED = "hooked functions are wrappers"
MODULES = "the recorder's modules are imported and have registered exit handlers and warning filters"
MEMORY = "the recorder uses memory"
THREAD = "the recorder has a thread and a garbage-collector callback"
TORCH = "torch hooks read tensors"
NO_SCRIPT = "a missing script gives one line and exit code 2"
NOTICEABLE = {
    "asyncio_loop": REPLACED,
    "atexit_count": MODULES,
    "atexit_slow_del": MODULES,
    "cls_deep_recursion_step": FRAMES,
    "cls_step_identity": REPLACED,
    "env_names_full": "/proc/self/environ shows how Python was started",
    "gc_state": THREAD,
    "gym_deep_wrappers": FRAMES,
    "import_hooks": "sys.meta_path has two more finders",
    "io_print_is_builtin": REPLACED,
    "log_config": FRAMES,
    "main_modules_at_start": MODULES,
    "main_modules_stdlib": MODULES,
    "main_name_conflicts": "a module named hotloop beside the script is not found",
    "main_sys_path": "sys.meta_path has two more finders",
    "misc_subinterp_debugger": FRAMES,
    "module_run_missing": NO_SCRIPT,
    "rlimit_as": MEMORY,
    "script_is_dir_without_main": NO_SCRIPT,
    "script_missing": NO_SCRIPT,
    "signal_sigterm_handled": FRAMES,
    "sys_audit_hook": "an audit hook sees the recorder open files",
    "thread_cprofile": FRAMES,
    "thread_enumerate": THREAD,
    "thread_native_count": THREAD,
    "thread_setprofile": FRAMES,
    "torch_deep_modules": FRAMES,
    "torch_function_modes": TORCH,
    "torch_profiler_user": TORCH,
    "warn_defaults": MODULES,
}
"""Differences a script can notice, as listed in docs/run.md. Remove a case that no longer differs."""
HELD_OUT = find_cases(FOLDER / "held_out")
SAME = [case for case in HELD_OUT if case.name not in NOTICEABLE]
EVERY = 6
"""`make test` runs every sixth held-out case, `make slow` the others."""


@pytest.mark.parametrize("case", SAME[::EVERY], ids=lambda case: case.name)
def test_a_recorded_held_out_script_behaves_the_same(case: Case, short_path: Path) -> None:
    assert differences(case, short_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in SAME if case not in SAME[::EVERY]], ids=lambda case: case.name)
def test_every_other_recorded_held_out_script_behaves_the_same(case: Case, short_path: Path) -> None:
    assert differences(case, short_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in HELD_OUT if case.name in NOTICEABLE], ids=lambda case: case.name)
def test_every_listed_difference_still_exists(case: Case, short_path: Path) -> None:
    assert differences(case, short_path) != []
