"""The same seed gives bit-identical weights with and without recording and its hooks."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from hotloop.profiling.trace.load import load

pytest.importorskip("torch")
pytest.importorskip("gymnasium")

SCRIPT = """
import hashlib, random
import gymnasium, numpy as np, torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(3); np.random.seed(3); random.seed(3)

class QNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 2))
    def forward(self, x):
        return self.layers(x)

class ReplayBuffer:
    def __init__(self):
        self.rows = []
    def add(self, *row):
        self.rows.append(row)
    def sample(self, n):
        columns = zip(*random.sample(self.rows, n))
        return [torch.as_tensor(np.array(column), dtype=torch.float32) for column in columns]

env, net, buffer = gymnasium.make("CartPole-v1"), QNetwork(), ReplayBuffer()
optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
obs, _ = env.reset(seed=3)
for step in range(400):
    with torch.no_grad():
        action = int(net(torch.as_tensor(obs)).argmax().item()) if random.random() > 0.2 else random.randrange(2)
    after, reward, terminated, truncated, _ = env.step(action)
    buffer.add(obs, action, reward, after, terminated)
    obs = env.reset()[0] if terminated or truncated else after
    if step >= 32:
        s, a, r, s2, d = buffer.sample(16)
        with torch.no_grad():
            target = r + 0.99 * (1 - d) * net(s2).max(1).values
        loss = nn.functional.mse_loss(net(s).gather(1, a.long()[:, None])[:, 0], target)
        optimiser.zero_grad(); loss.backward(); optimiser.step()
digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters()))
digest.update(str((random.random(), np.random.rand(), torch.rand(1).item())).encode())
print("weights", digest.hexdigest())
"""


def weights(words: list[str], cwd: Path) -> str:
    done = subprocess.run([sys.executable, *words], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = [line for line in done.stdout.splitlines() if line.startswith("weights")]
    assert len(found) == 1
    return found[0]


def test_recording_does_not_change_the_weights(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    plain = weights(["train.py"], tmp_path)
    recorded = weights(["-m", "hotloop.cli.main", "run", "--out", "out", "--hz", "500", "train.py"], tmp_path)
    assert recorded == plain
    assert len(plain.split()[1]) == hashlib.sha256().digest_size * 2
    trace = load(tmp_path / "out")
    assert trace.main.counts["env_steps"] == 400
    assert trace.main.counts["updates"] == 368
