"""A report names the user's own lines: where the time goes, and in which kind of activity."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """\
import json, random, time
import gymnasium as gym

env = gym.make("CartPole-v1")
env.reset(seed=0)
values = [random.random() for _ in range(1500)]
spent = [0.0, 0.0]

def rank():
    return sorted(values)

def pure():
    total = 0
    for i in range(3000):
        total += i * i % 7
    return total

begin = time.perf_counter()
while time.perf_counter() < begin + 5:
    obs, r, te, tr, _ = env.step(env.action_space.sample())
    first = time.perf_counter()
    rank()
    second = time.perf_counter()
    pure()
    spent = [spent[0] + second - first, spent[1] + time.perf_counter() - second]
    if te or tr:
        env.reset()
whole = time.perf_counter() - begin
print(json.dumps([each / whole for each in spent]))
"""


def hotloop(folder: Path, *words: str) -> str:
    environment = {**os.environ, "COLUMNS": "118"}
    command = [sys.executable, "-m", "hotloop", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, env=environment).stdout


pytestmark = pytest.mark.skipif(bool(os.environ.get("HOTLOOP_PURE")), reason="without C the shares of lines are rough")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[float]]:
    """The folder of a script and its recording, and the shares that the script itself measured."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "loop.py").write_text(SCRIPT)
    return folder, json.loads(hotloop(folder, "run", "--out", "run", "loop.py"))


def test_own_code_is_neither_acting_nor_learning(recorded):
    """Regression: this loop was reported as "act 95 %", and neither function was named."""
    folder, (rank, pure) = recorded
    report = json.loads(hotloop(folder, "explain", "run", "--json"))
    shares = {each["function"]: each["self_share"] for each in report["functions"]}
    assert (shares["rank"], shares["pure"]) == pytest.approx((rank, pure), abs=0.08)
    phases = {row["phase"]: row["share"] for row in report["phases"]}
    assert phases.keys() <= {"own code", "env", "log"}
    assert phases["own code"] > 0.8
    assert report["attributed_share"] == pytest.approx(1 - phases["own code"])
    lines = {each["function"]: each for each in report["lines"][::-1]}
    assert (lines["rank"]["callee"], lines["rank"]["kind"]) == ("sorted", "native")
    assert (lines["pure"]["line"], lines["pure"]["kind"]) == (15, "interpreter")


def test_calls_per_step_are_counted(recorded):
    report = json.loads(hotloop(recorded[0], "explain", "run", "--json"))
    per_step = {each["function"]: each["calls_per_env_step"] for each in report["functions"]}
    # On a busy machine a window has few steps, of which the first and the last are cut.
    assert 0.5 <= per_step["rank"] <= 2
    assert 0.5 <= per_step["pure"] <= 2


def test_the_verdict_comes_first_and_stands_alone(recorded):
    folder, _ = recorded
    brief = hotloop(folder, "explain", "run", "--brief")
    assert "env steps/s" in brief.splitlines()[1]
    assert "in pure (loop.py:15). Next: Python itself takes the time." in " ".join(brief.split())
    assert hotloop(folder, "explain", "run").startswith(brief)
    verdict = json.loads(hotloop(folder, "explain", "run", "--json"))["verdict"]
    assert (Path(verdict["file"]).name, verdict["line"], verdict["gain"]) == ("loop.py", 15, None)


def test_an_edited_script_is_noticed_and_the_old_source_quoted(recorded):
    folder, _ = recorded
    (folder / "loop.py").write_text("# another program\n")
    try:
        report = json.loads(hotloop(folder, "explain", "run", "--json"))
    finally:
        (folder / "loop.py").write_text(SCRIPT)
    assert any("was edited after the run" in warning for warning in report["warnings"])
    assert any(line["source"] == "return sorted(values)" for line in report["lines"])
