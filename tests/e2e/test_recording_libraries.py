"""Unmodified scripts that use popular libraries: their worker processes, evaluations and loggers are recognised."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest

from hotloop.phases import Phase
from hotloop.profiling.trace.load import load
from hotloop.profiling.trace.model import Process, Trace

pytest.importorskip("torch")
pytest.importorskip("gymnasium")


def record(place: Path, body: str) -> Trace:
    (place / "train.py").write_text(textwrap.dedent(body))
    words = [sys.executable, "-m", "hotloop.cli.main", "run", "--out", "out", "train.py"]
    done = subprocess.run(words, cwd=place, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return load(place / "out")


def calls(process: Process) -> Counter[str]:
    spans = [node for thread in process.threads for node in thread.nodes if node.kind == "span"]
    found: Counter[str] = Counter()
    for node in spans:
        found[node.name] += node.calls
    return found


def test_gymnasium_subprocess_environments_have_their_own_tables(tmp_path):
    trace = record(
        tmp_path,
        """
        import gymnasium
        if __name__ == "__main__":
            env = gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="async")
            env.reset(seed=1)
            for _ in range(300):
                env.step(env.action_space.sample())
            env.close()
        """,
    )
    assert trace.main.counts["env_steps"] == 600
    workers = trace.processes[1:]
    assert len(workers) == 2
    # An environment whose episode has ended is reset instead of stepped.
    assert all(calls(each)["CartPoleEnv.step"] + calls(each)["CartPoleEnv.reset"] >= 295 for each in workers)


def test_sb3_subprocess_environments_have_their_own_tables(tmp_path):
    pytest.importorskip("stable_baselines3")
    trace = record(
        tmp_path,
        """
        from stable_baselines3.common.env_util import make_vec_env
        from stable_baselines3.common.vec_env import SubprocVecEnv
        if __name__ == "__main__":
            env = make_vec_env("CartPole-v1", n_envs=2, vec_env_cls=SubprocVecEnv)
            env.reset()
            for _ in range(300):
                env.step([0, 1])
            env.close()
        """,
    )
    assert trace.main.counts["env_steps"] == 600
    workers = trace.processes[1:]
    assert len(workers) == 2
    assert all(calls(each)["CartPoleEnv.step"] >= 300 for each in workers)


def test_sb3_evaluation_is_not_counted_as_training(tmp_path):
    pytest.importorskip("stable_baselines3")
    trace = record(
        tmp_path,
        """
        import gymnasium
        from stable_baselines3 import DQN
        from stable_baselines3.common.callbacks import EvalCallback
        env, other = gymnasium.make("CartPole-v1"), gymnasium.make("CartPole-v1")
        model = DQN("MlpPolicy", env, learning_starts=50, seed=1)
        model.learn(600, callback=EvalCallback(other, eval_freq=200, n_eval_episodes=2, verbose=0, warn=False))
        """,
    )
    assert trace.main.counts["env_steps"] == 600
    assert trace.main.counts["evaluation_env_steps"] > 0
    assert trace.main.counts["evaluation_episodes"] == 6
    thread = trace.thread
    evaluations = [node for node in thread.nodes if node.name == "evaluate_policy"]
    assert sum(node.calls for node in evaluations) == 3
    inside = [node for each in evaluations for node in thread.subtree(each)]
    assert {node.name for node in inside} >= {"DQN.predict", "QNetwork", "CartPoleEnv.step"}
    assert {node.phase for node in inside} == {Phase.EVALUATE}
    outside = [node for node in thread.nodes if node.kind == "span" and node not in inside]
    assert Phase.EVALUATE not in {node.phase for node in outside}


def test_weights_and_biases_calls_are_classified_as_logging(tmp_path):
    """The wandb client is not installed here: a fake package with the same structure replaces it."""
    package = tmp_path / "wandb" / "sdk"
    package.mkdir(parents=True)
    (tmp_path / "wandb" / "__init__.py").write_text("from wandb.sdk.wandb_run import Run\nlog = Run().log\n")
    (package / "__init__.py").write_text("")
    (package / "wandb_run.py").write_text(
        "import time\nclass Run:\n    def log(self, data, step=None):\n        time.sleep(0.002)\n"
    )
    trace = record(
        tmp_path,
        """
        import gymnasium, wandb
        env = gymnasium.make("CartPole-v1")
        env.reset(seed=1)
        for i in range(200):
            if env.step(env.action_space.sample())[2]:
                env.reset()
            wandb.log({"step": i})
        """,
    )
    (node,) = (node for node in trace.thread.nodes if node.name == "Run.log")
    assert (node.calls, node.phase) == (200, Phase.LOG)
