"""The Python examples of the docs: their imports work, and those of the learners' page run."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hotloop.training.learn import Sequences
from hotloop.training.learn.dqn.learner import random_dqn_batch
from hotloop.training.learn.sac.learner import random_sac_batch

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE))
]


def learner_blocks() -> list[str]:
    return [str(block.values[0]) for block in BLOCKS if str(block.id).startswith("learners-")]


@pytest.mark.parametrize("block", BLOCKS)
def test_imports_work(block: str) -> None:
    tree = ast.parse(block)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = [node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name for node in imports]
    ours = [node for node, name in zip(imports, names, strict=True) if name.split(".")[0] == "hotloop"]
    exec(compile(ast.Module(ours, []), "docs", "exec"), {})


def test_the_dqn_example_runs() -> None:
    rng, updated = np.random.default_rng(0), []
    replay = SimpleNamespace(update_priorities=lambda index, error: updated.append((index, error.shape)))
    scope = {"obs": np.zeros((5, 10), np.float32), "rng": rng, "replay": replay}
    build, act = learner_blocks()[0].split("\n\nactions")
    exec(build, scope)
    batch = random_dqn_batch(scope["learner"].config, 8, rng)
    scope["batch"] = SimpleNamespace(**batch._asdict(), index=np.arange(512))
    exec("actions" + act, scope)
    assert scope["actions"].shape == (5,)
    assert scope["learner"].updates == 8
    assert updated[0][1] == (512,)


def test_the_sac_example_runs() -> None:
    rng = np.random.default_rng(0)
    build, act = learner_blocks()[1].replace("256", "4").split("\nactions")
    scope = {"stacks": np.zeros((3, 4, 96, 96), np.uint8), "rng": rng}
    exec(build, scope)
    scope["replay"] = SimpleNamespace(sample=lambda _, rng: random_sac_batch(scope["learner"].config, 1, rng))
    exec("actions" + act, scope)
    assert scope["actions"].shape == (3, 2)
    assert scope["learner"].updates == 1


def test_the_ricochet_example_runs() -> None:
    rng = np.random.default_rng(0)
    scope: dict = {"planes": np.zeros((2, 10, 16, 16), np.uint8), "begins": np.ones(2, bool), "rng": rng}
    block = learner_blocks()[2].replace("BoardPPOConfig(shape)", "BoardPPOConfig(shape, boards=2)")
    act, update = block.split("\nmetrics")
    exec(act, scope)
    acted, learner = scope["acted"], scope["learner"]
    real = rng.standard_normal((2, 1, 2), dtype=np.float32)
    steps = (scope["planes"][None], scope["begins"][None], learner.initial_memory(2), acted.action[None])
    scope["sequences"] = Sequences(*steps, acted.log_prob[None], *real)
    exec("metrics" + update, scope)
    assert acted.action.shape == (2,)
    assert learner.updates == learner.config.epochs
