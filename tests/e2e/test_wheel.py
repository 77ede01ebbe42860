"""The wheel, installed into an empty environment, records, explains and draws charts without torch and numba.

Code that works in a checkout may lack a file or a dependency once it is packaged.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STEPS = 40
SCRIPT = f"""
import sys
import time

from hotloop import span

for _ in range({STEPS}):
    with span("env.step"):
        time.sleep(0.01)
    with span("replay.sample"):
        sum(range(20_000))
print("trained", *sys.argv[1:])
sys.exit(3)
"""


def call(*command: str | Path, cwd: Path, expect: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command outside the checkout, so that only what was installed can be imported."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == expect, f"{command} exited {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def run(*command: str | Path, cwd: Path, expect: int = 0) -> str:
    """Run a command like `call`; return its stdout."""
    return call(*command, cwd=cwd, expect=expect).stdout


@pytest.fixture(scope="module")
def bin_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin directory of an environment with only the wheel and its core dependencies."""
    place = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", place, ROOT, cwd=place)
    wheels = list(place.glob("hotloop-*.whl"))
    assert len(wheels) == 1, wheels
    venv.create(place / "env", with_pip=True)
    bin_dir = place / "env" / "bin"
    constraints = ROOT / "constraints.txt"
    run(bin_dir / "python", "-m", "pip", "-qq", "install", "-c", constraints, wheels[0], cwd=place)
    return bin_dir


@pytest.fixture(scope="module")
def recorded(bin_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded run of a script that does not use torch and exits with 3."""
    place = tmp_path_factory.mktemp("recorded")
    (place / "train.py").write_text(SCRIPT)
    out = run(bin_dir / "hotloop", "run", "--out", "mine", "train.py", "--lr", "1", cwd=place, expect=3)
    assert "trained --lr 1" in out
    return place / "mine"


@pytest.mark.parametrize("name", ["torch", "numba", "gymnasium"])
def test_the_environment_has_no_training_library(bin_dir: Path, tmp_path: Path, name: str) -> None:
    assert importlib.util.find_spec(name), f"{name} is not installed here either, so its absence there proves nothing"
    code = f"import importlib.util; print(importlib.util.find_spec({name!r}))"
    assert run(bin_dir / "python", "-c", code, cwd=tmp_path).strip() == "None"


def test_import_is_light(bin_dir: Path, tmp_path: Path) -> None:
    code = "import hotloop, sys; print({'torch', 'numba', 'pyarrow', 'matplotlib'} & set(sys.modules))"
    assert run(bin_dir / "python", "-c", code, cwd=tmp_path).strip() == "set()"


def test_version_is_the_package_version(bin_dir: Path, tmp_path: Path) -> None:
    code = "import importlib.metadata as m; print(m.version('hotloop'))"
    version = run(bin_dir / "python", "-c", code, cwd=tmp_path).strip()
    assert version in run(bin_dir / "hotloop", "--version", cwd=tmp_path)


def test_doctor_works_without_torch(bin_dir: Path, tmp_path: Path) -> None:
    answer = json.loads(run(bin_dir / "hotloop", "doctor", "--json", cwd=tmp_path))
    assert isinstance(answer["schema"], int)


@pytest.mark.parametrize("words", [("demo",), ("train", "dqn-snake"), ("play", "run"), ("evaluate", "run")])
def test_commands_with_missing_dependencies_say_what_to_install(
    bin_dir: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = call(bin_dir / "hotloop", *words, cwd=tmp_path, expect=2)
    missing = "gymnasium, numba, safetensors, torch"
    message = f'hotloop: to train and to play, {missing} must be installed: `pip install "hotloop[train]"`\n'
    assert (done.stdout, done.stderr) == ("", message)
    assert list(tmp_path.iterdir()) == []


def test_pipelines_are_listed_without_the_training_dependencies(bin_dir: Path, tmp_path: Path) -> None:
    assert "dqn-snake" in run(bin_dir / "hotloop", "train", cwd=tmp_path)
    assert "--seed" in run(bin_dir / "hotloop", "train", "ppo-snake", "--help", cwd=tmp_path)


def test_a_recorded_run_is_explained(bin_dir: Path, recorded: Path) -> None:
    answer = json.loads(run(bin_dir / "hotloop", "explain", recorded, "--json", cwd=recorded.parent))
    assert isinstance(answer["schema"], int)
    calls = {span["name"]: span["calls"] for span in answer["spans"]}
    assert calls["env.step"] == STEPS
    assert calls["replay.sample"] == STEPS
    total_s = {span["name"]: span["total_s"] for span in answer["spans"]}
    assert total_s["env.step"] <= answer["wall_s"]


def test_charts_are_drawn(bin_dir: Path, recorded: Path, tmp_path: Path) -> None:
    charts = tmp_path / "charts.png"
    run(bin_dir / "hotloop", "explain", recorded, "--charts", charts, cwd=tmp_path)
    assert charts.read_bytes().startswith(b"\x89PNG")
