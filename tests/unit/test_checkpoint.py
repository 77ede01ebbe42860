from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hotloop.learn import checkpoint

GROUPS = {
    "learner": {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "step": np.array(7, np.int64)},
    "replay": {"done": np.array([True, False]), "obs": np.arange(8, dtype=np.uint8)},
}


def written(folder: Path, env_steps: int = 10) -> Path:
    path = checkpoint.step_path(folder, env_steps)
    checkpoint.write(path, GROUPS, {"pipeline": "p", "big": 2**127 + 1, "share": 0.1})
    return path


def test_what_is_written_is_read_again_exactly(tmp_path: Path) -> None:
    found = checkpoint.read(written(tmp_path))
    assert found.meta == {"pipeline": "p", "big": 2**127 + 1, "share": 0.1}
    assert {name: set(group) for name, group in found.groups.items()} == {
        "learner": {"w", "step"},
        "replay": {"done", "obs"},
    }
    for name, arrays in GROUPS.items():
        for key, value in arrays.items():
            np.testing.assert_array_equal(found.groups[name][key], value)
            assert (found.groups[name][key].dtype, found.groups[name][key].shape) == (value.dtype, value.shape)


def test_groups_that_are_not_asked_for_are_not_read(tmp_path: Path) -> None:
    path = written(tmp_path)
    (path / "replay.safetensors").unlink()
    assert set(checkpoint.read(path, only=["learner"]).groups) == {"learner"}
    with pytest.raises(checkpoint.CheckpointUnreadable, match="damaged or missing"):
        checkpoint.read(path)


def test_a_changed_byte_and_a_cut_file_are_refused(tmp_path: Path) -> None:
    file = written(tmp_path) / "learner.safetensors"
    whole = file.read_bytes()
    for damaged in (whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1]), b""):
        file.write_bytes(damaged)
        with pytest.raises(checkpoint.CheckpointUnreadable, match="damaged"):
            checkpoint.read(file.parent)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"format": 1, "digests": 3, "meta": {}}'])
def test_a_damaged_description_is_refused(tmp_path: Path, text: str) -> None:
    path = written(tmp_path)
    (path / checkpoint.META).write_text(text)
    with pytest.raises(checkpoint.CheckpointUnreadable, match="damaged"):
        checkpoint.read(path)


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path)
    outer = json.loads((path / checkpoint.META).read_text())
    (path / checkpoint.META).write_text(json.dumps(outer | {"format": 2}))
    with pytest.raises(checkpoint.CheckpointUnreadable, match="format 2"):
        checkpoint.read(path)


def test_a_write_that_dies_leaves_the_old_checkpoint_as_it_was(tmp_path: Path) -> None:
    path = written(tmp_path)
    with pytest.raises(TypeError):
        checkpoint.write(path, GROUPS, {"not json": object()})
    assert checkpoint.read(path).meta["pipeline"] == "p"
    assert checkpoint.find(tmp_path) == path


def test_the_last_are_kept_and_the_best(tmp_path: Path) -> None:
    paths = [written(tmp_path, steps) for steps in (5, 40, 300, 2000)]
    checkpoint.mark_best(paths[0])
    checkpoint.mark_best(paths[1])
    checkpoint.keep_last(tmp_path, 2)
    assert [path.exists() for path in paths] == [False, True, True, True]
    assert checkpoint.find(tmp_path) == paths[3]
    assert checkpoint.find(tmp_path, best=True).resolve() == paths[1].resolve()


def test_a_checkpoint_is_found_by_each_of_its_names(tmp_path: Path) -> None:
    path = written(tmp_path)
    for name in (tmp_path, tmp_path / "checkpoints", path, path / "checkpoint.json", path / "learner.safetensors"):
        assert checkpoint.find(name) == path


def test_where_none_is_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(checkpoint.CheckpointUnreadable, match="holds no checkpoint"):
        checkpoint.find(tmp_path)
    with pytest.raises(checkpoint.CheckpointUnreadable, match="no checkpoint at"):
        checkpoint.find(tmp_path / "gone")
    with pytest.raises(checkpoint.CheckpointUnreadable, match="not a checkpoint"):
        checkpoint.read(tmp_path)
