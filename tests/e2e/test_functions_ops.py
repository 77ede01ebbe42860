"""`--functions`, `--ops` and `--modules` on a small torch script: exact counts, and no effect on the training."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("gymnasium")

HOTLOOP = [sys.executable, "-m", "hotloop.cli.main"]
STEPS, LEARNS_AFTER = 400, 40
UPDATES = STEPS - LEARNS_AFTER
SCRIPT = """
import hashlib, random, sys
import gymnasium, numpy as np, torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(3); np.random.seed(3); random.seed(3)

class QNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        # In place, which full backward hooks would not allow.
        self.body = nn.Sequential(nn.Linear(4, 32), nn.ReLU(inplace=True), nn.Dropout(0.1))
        self.head = nn.Linear(32, 2)
    def forward(self, x):
        return self.head(self.body(x))

def shaped(obs):
    return sum(float(each) for each in obs) * 0.0

def act(net, obs):
    with torch.no_grad():
        return int(net(torch.as_tensor(obs)).argmax().item())

def learn(net, optimiser, rows):
    s, a, r, s2, d = [torch.as_tensor(np.array(c), dtype=torch.float32) for c in zip(*random.sample(rows, 16))]
    with torch.no_grad():
        target = r + 0.99 * (1 - d) * net(s2).max(1).values
    loss = nn.functional.mse_loss(net(s).gather(1, a.long()[:, None])[:, 0], target)
    optimiser.zero_grad(); loss.backward(); optimiser.step()

def train(steps):
    env, net, rows = gymnasium.make("CartPole-v1"), QNetwork(), []
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
    obs, _ = env.reset(seed=3)
    for step in range(steps):
        action = act(net, obs)
        after, reward, terminated, truncated, _ = env.step(action)
        rows.append((obs, action, reward + shaped(obs), after, terminated))
        obs = env.reset()[0] if terminated or truncated else after
        if step >= LEARNS_AFTER:
            learn(net, optimiser, rows)
        if step == 300:
            print("step 300", flush=True)
    return net

net = train(int(sys.argv[1]))
digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters()))
digest.update(str((random.random(), np.random.rand(), torch.rand(1).item())).encode())
print("weights", digest.hexdigest())
""".replace("LEARNS_AFTER", str(LEARNS_AFTER))


def python(place: Path, *words: object, expect: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, *map(str, words)], cwd=place, capture_output=True, text=True)
    assert done.returncode == expect, f"{words} exited {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def hotloop(place: Path, *words: object, expect: int = 0) -> subprocess.CompletedProcess[str]:
    return python(place, "-m", "hotloop.cli.main", *words, expect=expect)


def weights(output: str) -> str:
    return next(line for line in output.splitlines() if line.startswith("weights"))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("looks")
    (place / "train.py").write_text(SCRIPT)
    return place


@pytest.fixture(scope="module")
def plain(place: Path) -> str:
    return weights(python(place, "train.py", STEPS).stdout)


def explained(place: Path, run: str) -> dict[str, Any]:
    return json.loads(hotloop(place, "explain", "--json", run).stdout)


def test_functions_are_counted_exactly_and_change_nothing(place, plain):
    done = hotloop(place, "run", "--functions", 50, "--out", "functions", "train.py", STEPS)
    assert weights(done.stdout) == plain
    content = explained(place, "functions")
    look = content["looks"]["functions"]
    assert (look["state"], look["iterations"], look["warmup"], look["updates"]) == ("done", 50, 100, 50)
    rows = {row["name"]: row for row in content["traced_functions"]}
    assert {name: rows[name]["calls"] for name in ("act", "learn", "shaped", "CartPoleEnv.step")} == dict.fromkeys(
        ("act", "learn", "shaped", "CartPoleEnv.step"), 50
    )
    assert rows["QNetwork.forward"]["calls"] == 150
    assert rows["TensorBase.item"]["calls"] == 50 * 5, "four of them in Adam, whose step counter is a tensor"
    assert (rows["train"]["calls"], rows["train"]["kind"], rows["train"]["optimisable"]) == (0, "own", "yes")
    assert rows["CartPoleEnv.step"]["kind"] == "library"
    assert rows["torch.as_tensor"]["kind"] == "native"
    assert rows["learn"]["file"].endswith("train.py")
    assert sum(row["share"] for row in content["traced_functions"]) == pytest.approx(1.0)
    # Deep-sampled iterations are counted, but excluded from the tables of times.
    assert (content["counts"]["env_steps"], content["counts"]["updates"]) == (STEPS, UPDATES)
    assert sum(row["self_s"] for row in content["phases"]) <= content["wall_s"] * 1.001
    shown = hotloop(place, "explain", "functions", "--detailed", "d.json").stdout
    assert "Functions  50 iterations after 100, not in the tables above" in shown
    assert "your own code" in shown
    tree = json.loads((place / "d.json").read_text())["function_tree"]
    assert [row["name"] for row in tree[:3]] == ["<module>", "train", "learn"]
    assert {row["calls"] for row in tree if row["name"] == "learn"} == {50}


def test_the_python_tracer_counts_the_same_calls(place, plain, monkeypatch):
    monkeypatch.setenv("HOTLOOP_PURE", "1")
    done = hotloop(place, "run", "--functions", 20, "--out", "pure", "train.py", STEPS)
    assert weights(done.stdout) == plain
    rows = {row["name"]: row["calls"] for row in explained(place, "pure")["traced_functions"]}
    assert (rows["act"], rows["learn"], rows["QNetwork.forward"], rows["TensorBase.item"]) == (20, 20, 60, 100)


def test_operators_are_counted_exactly_and_change_nothing(place, plain):
    done = hotloop(place, "run", "--ops", 30, "--warmup", 60, "--out", "ops", "train.py", STEPS)
    assert weights(done.stdout) == plain
    assert "USDT" not in done.stderr
    content = explained(place, "ops")
    assert content["looks"]["operators"]["state"] == "done"
    rows = {row["name"]: row for row in content["operators"]}
    assert rows["aten::linear"]["calls"] == 30 * 6, "two layers, three network calls"
    assert rows["aten::addmm"]["calls"] == 30 * 6
    assert rows["aten::argmax"]["calls"] == 30
    assert rows["MseLossBackward0"]["calls"] == 30
    assert rows["aten::linear"]["total_s"] >= rows["aten::linear"]["self_s"] > 0
    assert sum(row["self_s"] for row in rows.values()) <= content["looks"]["operators"]["iteration_s"] * 30
    assert content["traced_functions"] == []
    assert "Torch operators  30 iterations after 60" in hotloop(place, "explain", "ops").stdout


def test_layers_are_timed_forward_and_backward_and_change_nothing(place, plain):
    done = hotloop(place, "run", "--modules", 3, "--modules-every", 4, "--out", "layers", "train.py", STEPS)
    assert weights(done.stdout) == plain
    content = explained(place, "layers")
    look = content["looks"]["layers"]
    timed = (UPDATES - 1) // 4
    assert (look["every"], look["updates"], look["updates_timed"], look["synchronised"]) == (4, UPDATES, timed, False)
    rows = {row["name"]: row for row in content["layers"]}
    assert list(rows) == [
        "QNetwork", "QNetwork.body", "QNetwork.body.0", "QNetwork.body.1", "QNetwork.body.2", "QNetwork.head"
    ]  # fmt: skip
    assert [row["module"] for row in rows.values()] == ["QNetwork", "Sequential", "Linear", "ReLU", "Dropout", "Linear"]
    assert {row["grad_calls"] for row in rows.values()} <= {timed, timed + 1}
    for row in rows.values():
        assert row["forward_s"] > 0
        assert row["backward_s"] > 0
    below = sum(rows[name]["backward_s"] for name in ("QNetwork.body", "QNetwork.head"))
    assert rows["QNetwork"]["backward_s"] >= below - 1e-9, "at least the sum of its parts, up to rounding"
    assert rows["QNetwork"]["share"] == pytest.approx(1.0)
    assert content["counts"]["updates"] == UPDATES, "layer timing does not exclude iterations"


def test_all_deep_samples_together_change_nothing(place, plain):
    words = ("--functions", 40, "--ops", 40, "--modules", 2, "--modules-every", 1)
    done = hotloop(place, "run", *words, "--out", "all", "train.py", STEPS)
    assert weights(done.stdout) == plain
    content = explained(place, "all")
    assert {name: look.get("state") for name, look in content["looks"].items()} == {
        "functions": "done", "operators": "done", "layers": None
    }  # fmt: skip
    assert content["counts"]["env_steps"] == STEPS


def test_deep_samples_survive_a_kill(place):
    words = [*HOTLOOP, "run", "--functions", "20", "--modules", "2", "--out", "killed", "train.py", "1000000"]
    running = subprocess.Popen(words, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert running.stdout is not None
        assert running.stdout.readline().strip() == "step 300"
        time.sleep(3)
        going = explained(place, "killed")
        assert (going["state"], going["looks"]["functions"]["state"]) == ("running", "done")
        running.send_signal(signal.SIGKILL)
        running.wait()
    finally:
        running.kill()
        running.communicate()
    content = explained(place, "killed")
    assert content["state"] == "killed"
    assert {row["name"]: row["calls"] for row in content["traced_functions"]}["learn"] == 20
    assert content["layers"]


def test_a_script_that_ends_during_warmup_is_reported(place):
    done = hotloop(place, "run", "--functions", 50, "--ops", 5, "--out", "short", "train.py", 60)
    lines = [line for line in done.stderr.splitlines() if "saw nothing" in line]
    assert len(lines) == 2
    assert "after 60 of the 100 iterations of warm-up" in lines[0]
    assert "Nothing was recorded: the run ended after 60" in hotloop(place, "explain", "short").stdout


@pytest.mark.parametrize(
    "words", [("--functions", 0), ("--ops", "many"), ("--modules-every", 0), ("--warmup", -1),
              ("--modules", 0, "--modules-every", 2)],
)  # fmt: skip
def test_invalid_values_are_reported_in_one_line(place, words):
    done = hotloop(place, "run", *words, "train.py", expect=2)
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("hotloop: ")


def test_train_can_sample_functions_of_its_pipeline(place):
    pytest.importorskip("numba")
    words = ("--steps", 200_000, "--eval-episodes", 0, "--functions", 10, "--quiet", "--out", "snake")
    hotloop(place, "train", "dqn-snake", *words)
    rows = {row["name"]: row for row in explained(place, "snake")["traced_functions"]}
    assert (rows["collect"]["calls"], rows["collect"]["kind"]) == (10, "own")
    done = hotloop(place, "train", "dqn-snake", "--functions", -3, expect=2)
    assert done.stderr == "hotloop: --functions is -3: give 0 or more\n"
