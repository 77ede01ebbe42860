"""A training that writes a lot: lines of a log, JSON, arrays, checkpoints, and files that must reach the disk."""

from __future__ import annotations

import csv
import io
import json
import os
import pickle
import sys
import tempfile
from pathlib import Path

import numpy as np
from loop_clock import Clock

clock = Clock(__file__)


class Bandit:
    """Sixty-four arms."""

    def reset(self) -> np.ndarray:
        self.rng = np.random.default_rng(1)
        self.means = self.rng.standard_normal(64)
        return self.means

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        return self.means, float(self.means[action] + self.rng.standard_normal()), False, False, {}


def main(seconds: float, folder: Path) -> None:
    env, weights = Bandit(), np.random.default_rng(2).standard_normal((500, 400))
    env.reset()
    rows = [{"step": i, "loss": i * 0.1, "name": f"run-{i}"} for i in range(150)]
    with open(folder / "log.csv", "w", newline="") as text, open(folder / "data.bin", "wb", buffering=0) as raw:
        log = csv.writer(text)
        for step in clock.steps(seconds):
            _, reward, *_ = env.step(step % 64)
            with clock.part("csv"):
                log.writerows([step, reward, i] for i in range(400))
                text.seek(0)
            with clock.part("json"):
                (folder / "state.json").write_text(json.dumps(rows))
            with clock.part("np.save", own=False):
                np.save(folder / "weights.npy", weights)
            with clock.part("pickle"):
                pickle.dump(rows, buffer := io.BytesIO())
            with clock.part("raw write"):
                raw.write(weights.data)
                raw.write(buffer.getvalue())
                raw.seek(0)
            with clock.part("fsync"):
                os.fsync(raw.fileno())
            with clock.part("learn"):
                weights = weights * 0.999 + 0.001 * reward
            with clock.part("read"):
                best = np.load(folder / "weights.npy")
            if best.shape != weights.shape:
                raise RuntimeError("cannot be")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as where:
        main(float(sys.argv[1]), Path(where))
    clock.report()
