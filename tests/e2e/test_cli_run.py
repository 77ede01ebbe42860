"""A small script without torch, recorded and explained in subprocesses, as a user would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hotloop.cli.main import main

HOTLOOP = [sys.executable, "-m", "hotloop.cli.main"]
SCRIPT = """
import sys
import time

from hotloop import count, span

steps, code = int(sys.argv[1]), int(sys.argv[2])
for step in range(steps):
    with span("env.step"):
        time.sleep(0.002)
    count("env_steps")
    with span("replay.sample"):
        [i * i for i in range(20_000)]
    count("updates")
    if step % 50 == 49:
        count("episodes")
print("arguments:", sys.argv[1:])
sys.exit(code)
"""


def call(*words: object, cwd: Path, expect: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*HOTLOOP, *map(str, words)], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == expect, f"{words} exited {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a script and one run of it."""
    place = tmp_path_factory.mktemp("runs")
    (place / "train.py").write_text(SCRIPT)
    done = call("run", "--out", "runs/first", "train.py", 600, 7, "--out", "x", "-m", cwd=place, expect=7)
    assert "arguments: ['600', '7', '--out', 'x', '-m']" in done.stdout, (
        "arguments after the script belong to the script"
    )
    assert "hotloop explain runs/first" in done.stderr
    return place


def test_times_in_the_json_of_a_real_run_add_up(place):
    content = json.loads(call("explain", "--json", cwd=place).stdout)
    assert content["run"].endswith("first")
    assert (content["state"], content["exit_code"]) == ("failed", 7)
    assert content["counts"]["env_steps"] == 600
    assert content["counts"]["updates"] == 600
    assert content["counts"]["steps_per_episode"] == pytest.approx(50.0)
    assert sum(row["share"] for row in content["phases"]) == pytest.approx(1.0, abs=1e-6)
    spans = {row["name"]: row for row in content["spans"]}
    assert spans["replay.sample"]["phase"] == "sample"
    assert 0 < spans["replay.sample"]["self_s"] < content["wall_s"]
    assert content["rates"]["env_steps_per_s"] > 0


def test_terminal_and_file_reports_agree(place, tmp_path):
    files = tmp_path / "o.txt", tmp_path / "c.png", tmp_path / "d.json"
    done = call("explain", "first", "--output", files[0], "--charts", files[1], "--detailed", files[2], cwd=place)
    assert done.stdout == files[0].read_text(encoding="utf-8")
    assert "replay.sample" in done.stdout
    assert files[1].read_bytes().startswith(b"\x89PNG")
    assert {"tree", "lines", "windows", "schema"} <= set(json.loads(files[2].read_text()))
    assert done.stderr.count("wrote") == 3


def test_an_unwritable_output_file_is_reported_in_one_line(place):
    done = call("explain", "--json", "--charts", "nowhere/c.png", cwd=place, expect=2)
    assert "cannot write nowhere/c.png: make the folder nowhere first" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    done = call("explain", "--charts", "c.foo", cwd=place, expect=2)
    assert "must be a file name that ends in .png, not 'c.foo'" in done.stderr
    done = call("run", "--budget", "200%", "x.py", cwd=place, expect=2)
    assert "must be a share above 0 and up to 100%, such as 1%, not '200%'" in done.stderr


def test_ls_shows_the_step_rate_of_the_run(place):
    row = json.loads(call("ls", "--json", cwd=place).stdout)["runs"][0]
    assert row["name"] == "first"
    assert (row["state"], row["exit_code"]) == ("failed", 7)
    assert row["env_steps_per_s"] > 0


def test_ls_shows_how_each_script_ended(place, tmp_path):
    endings = {
        "well": ("pass", 0), "left": ("raise SystemExit(0)", 0), "raised": ("1 / 0", 1),
        "refused": ("raise SystemExit('no data')", 1), "code": ("raise SystemExit(3)", 3),
        "ctrl-c": ("import os, signal; os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT),
    }  # fmt: skip
    for name, (ending, code) in endings.items():
        (tmp_path / "ending.py").write_text(f"sum(range(10))\n{ending}\n")
        call("run", "--out", f"runs/{name}", "ending.py", cwd=tmp_path, expect=code)
    rows = json.loads(call("ls", "--json", cwd=tmp_path).stdout)["runs"]
    assert {row["name"]: (row["state"], row["exit_code"]) for row in rows} == {
        "well": ("finished", 0), "left": ("finished", 0), "raised": ("failed", 1), "refused": ("failed", 1),
        "code": ("failed", 3), "ctrl-c": ("interrupted", 130),
    }  # fmt: skip
    shown = {line.split()[0]: line for line in call("ls", cwd=tmp_path).stdout.splitlines()}
    assert "failed (exit 3)" in shown["runs/code"]
    assert "interrupted" in shown["runs/ctrl-c"] and "exit" not in shown["runs/ctrl-c"]
    assert "finished" in shown["runs/well"] and "exit" not in shown["runs/well"]


def test_a_script_that_records_itself_saves_how_it_ended(tmp_path):
    for name, ending, state in (("raised", "1 / 0", "failed"), ("well", "", "finished")):
        code = f"import hotloop\nhotloop.record('runs/{name}')\n{ending}"
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True)
        assert json.loads((tmp_path / "runs" / name / "run.json").read_text())["state"] == state


def test_a_module_is_recorded_and_prints_summaries_while_running(place):
    done = call("run", "--out", "runs/module", "--summary-every", "1", "-m", "train", 800, 0, cwd=place)
    assert "arguments: ['800', '0']" in done.stdout
    assert "env steps/s" in done.stderr
    assert "sample" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["absent.py"], "absent.py"),
        (["-m", "absent.module"], "absent.module"),
        (["--out", "runs/first", "train.py", "1", "0"], "runs/first"),
        (["."], "directory"),
    ],
)
def test_scripts_that_cannot_be_recorded_are_reported_in_one_line(place, words, message):
    done = call("run", *words, cwd=place, expect=2)
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert message in done.stderr


def test_running_and_killed_runs_can_be_explained(place):
    process = subprocess.Popen([*HOTLOOP, "run", "--out", "runs/long", "train.py", "20000", "0"], cwd=place)
    try:
        content = wait_for(place)
        assert content["state"] == "running"
        assert content["counts"]["env_steps"] > 0
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    content = json.loads(call("explain", "runs/long", "--json", cwd=place).stdout)
    assert (content["state"], content["complete"]) == ("killed", False)
    assert content["counts"]["env_steps"] > 0
    assert "was killed" in call("explain", "runs/long", cwd=place).stdout.splitlines()[0]


def wait_for(place: Path) -> dict:
    """Wait until the long run has counted a step; return its report."""
    for _ in range(60):
        done = subprocess.run(
            [*HOTLOOP, "explain", "runs/long", "--json"],
            cwd=place,
            capture_output=True,
            text=True,
        )
        if done.returncode == 0 and json.loads(done.stdout)["counts"]["env_steps"]:
            return json.loads(done.stdout)
        assert "Traceback" not in done.stderr, done.stderr
        time.sleep(0.3)
    raise AssertionError(done.stderr)


def test_a_script_name_with_a_leading_dash_follows_two_dashes(tmp_path):
    (tmp_path / "-x.py").write_text("import sys; print(sys.argv)")
    done = call("run", "--out", "run", "--", "-x.py", "--flag", cwd=tmp_path)
    assert done.stdout == "['-x.py', '--flag']\n"


def test_a_script_can_be_read_from_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    words = [*HOTLOOP, "run", "--out", "run", "pipe"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        (tmp_path / "pipe").write_text("print('once')\n")
        out, err = process.communicate()
    assert (process.returncode, out) == (0, "once\n"), err


@pytest.mark.parametrize("out", ["", "a\0b"])
def test_an_unusable_run_directory_name_is_reported_in_one_line(out, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    assert main(["run", "--out", out, "train.py"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("hotloop: the run directory is ") and err.endswith(": give a path (--out DIR)\n")
    assert err.count("\n") == 1
