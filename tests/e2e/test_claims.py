"""A script that prints its own timings, recorded and explained: only wrong ones are reported."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")
ROOT = Path(__file__).parents[2]

SCRIPT = """
import sys, time
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(1)

class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(4, 16, 8, 4)
        self.conv2 = nn.Conv2d(16, 32, 4, 2)
        self.head = nn.Linear(512, 1)

    def forward(self, x):
        times = [time.perf_counter()]
        for layer in (self.conv1, self.conv2):
            x = layer(x).relu()
            times.append(time.perf_counter())
        q = self.head(x.flatten(1))
        times.append(time.perf_counter())
        return q, [1000 * (b - a) for a, b in zip(times, times[1:])]

critic = Critic()
optimiser = torch.optim.Adam(critic.parameters())
for update in range(20):
    start = time.perf_counter()
    q, took = critic(torch.zeros(64, 4, 48, 48))
    total = 1000 * (time.perf_counter() - start)
    optimiser.zero_grad(); q.mean().backward(); optimiser.step()
    if update % 5 == 4:
        if sys.argv[1] == "wrong":
            took, total = [0.01, 0.005, 0.01], 1.4  # times that happened to rise would be time since a start
        else:
            total = 1.05 * sum(took)  # on a busy machine much more can lie between the clocks
        print(f"Critic forward: {total:.3f} ms")
        for name, ms in zip(("conv1", "conv2", "head"), took):
            print(f"  ├─ {name}: {ms:.3f} ms")
        print(f"{update} updates in {total:.2f} s, loss 0.1")
print("weight", critic.conv1.weight.sum().item())
"""


@pytest.fixture(scope="module")
def findings(tmp_path_factory) -> dict[str, list[dict]]:
    folder = tmp_path_factory.mktemp("claims")
    (folder / "train.py").write_text(SCRIPT)
    found = {}
    for how in ("wrong", "right"):
        done = hotloop(folder, "run", "--out", how, "train.py", how)
        plain = subprocess.run([sys.executable, "train.py", how], cwd=folder, capture_output=True, text=True)
        assert [line.split()[0] for line in done.splitlines()] == [
            line.split()[0] for line in plain.stdout.splitlines()
        ]
        assert done.splitlines()[-1] == plain.stdout.splitlines()[-1]
        found[how] = json.loads(hotloop(folder, "explain", how, "--json"))["findings"]
    return found


def hotloop(folder: Path, *words: str) -> str:
    command = [sys.executable, "-m", "hotloop.cli.main", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def of_rule(findings: list[dict], rule: str) -> list[dict]:
    return [each for each in findings if each["rule"] == rule]


def test_wrong_printed_timings_are_reported(findings):
    (impossible,) = of_rule(findings["wrong"], "impossible_timing")
    assert impossible["title"] == "Timings that the script prints are impossible on this machine: conv1, conv2."
    assert "Critic forward / conv1 is printed as 10 µs: its 63.4 MFLOP" in impossible["evidence"][1]
    assert Path(impossible["file"]).name == "train.py"
    assert "print(" in SCRIPT.splitlines()[impossible["line"] - 1]
    (parts,) = of_rule(findings["wrong"], "parts_do_not_sum")
    assert "its parts (conv1 10 µs, conv2 5 µs, head 10 µs) sum to 26.5 µs" in parts["evidence"][1]


def test_correct_printed_timings_are_not_reported(findings):
    assert of_rule(findings["right"], "impossible_timing") == []
    assert of_rule(findings["right"], "parts_do_not_sum") == []


@pytest.fixture
def zoo(monkeypatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("zoo_run", ROOT / "zoo" / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "zoo_run", module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("missing", [None, "impossible_timing", "parts_do_not_sum"])
def test_a_zoo_case_fails_without_its_additional_findings(zoo, monkeypatch, tmp_path, missing):
    (case,) = zoo.read_cases(["sac_study_timers"])
    rules = [each for each in ("list_batch", "impossible_timing", "parts_do_not_sum") if each != missing]
    place = {"file": case.file, "line": case.lines[0], "gain": 1.2, "gain_low": 1.1, "gain_high": 1.3}
    slow = [{"rule": rule} | place for rule in rules]
    reports = {"slow.py": {"findings": slow}, "fixed.py": {"findings": []}}
    monkeypatch.setattr(zoo, "explain", lambda case, script, kept: reports[script])
    assert zoo.study(case, measuring="none", kept=tmp_path).hit is (missing is None)
