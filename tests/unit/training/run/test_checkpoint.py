from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.disks import full_disk

from hotloop.training.run import checkpoint, checkpoint_files

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
    (path / checkpoint.META).write_text(json.dumps(outer | {"format": 3}))
    with pytest.raises(checkpoint.CheckpointUnreadable, match="format 3"):
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


def outer_of(path: Path) -> dict[str, Any]:
    return json.loads((path / checkpoint.META).read_text())


def sign(path: Path, outer: dict[str, Any]) -> None:
    """Write a description with the digest that belongs to it, as whoever crafts one can."""
    body = {name: value for name, value in outer.items() if name != "digest"}
    (path / checkpoint.META).write_text(json.dumps(body | {"digest": checkpoint_files._digest_of(body)}))


def test_no_flipped_bit_of_the_description_goes_unnoticed(tmp_path: Path) -> None:
    path = written(tmp_path)
    file, meant = path / checkpoint.META, checkpoint.read(path)
    whole = file.read_bytes()
    for place in range(len(whole)):
        for bit in (0, 1, 4):
            file.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
            try:
                found = checkpoint.read(path)
            except checkpoint.CheckpointUnreadable:
                continue
            assert (found.meta, found.groups.keys()) == (meant.meta, meant.groups.keys()), (place, bit)


def test_a_checkpoint_of_the_first_format_is_read(tmp_path: Path) -> None:
    path = written(tmp_path)
    outer = outer_of(path) | {"format": 1}
    (path / checkpoint.META).write_text(json.dumps(outer))
    with pytest.raises(checkpoint.CheckpointUnreadable, match="digest"):
        checkpoint.read(path)
    del outer["digest"]
    (path / checkpoint.META).write_text(json.dumps(outer))
    assert checkpoint.read(path).meta["pipeline"] == "p"


@pytest.mark.parametrize(
    "name", ["../x.safetensors", "/etc/passwd", "a/b.safetensors", "..", "", "x", "x.safetensors\n"]
)
def test_only_files_beside_the_description_are_read(tmp_path: Path, name: str) -> None:
    path = written(tmp_path)
    outer = outer_of(path)
    outer["digests"][name] = "0" * 64
    sign(path, outer)
    with pytest.raises(checkpoint.CheckpointUnreadable, match="wrong file or digest"):
        checkpoint.read(path)


@pytest.mark.parametrize("what", ["link", "pipe", "folder"])
@pytest.mark.parametrize("name", ["learner.safetensors", checkpoint.META])
def test_only_regular_files_are_read(tmp_path: Path, what: str, name: str) -> None:
    path = written(tmp_path)
    file = (path / name).rename(tmp_path / name)
    if what == "link":
        (path / name).symlink_to(file)
    elif what == "pipe":
        os.mkfifo(path / name)
    else:
        (path / name).mkdir()
    with pytest.raises(checkpoint.CheckpointUnreadable, match=r"symbolic link|regular file"):
        checkpoint.read(path)


@pytest.mark.parametrize(
    "value", ["Infinity", "NaN", "1e999", "9" * 5000, str(1 << 129), "[" * 20 + "]" * 20, "[" * 100_000 + "]" * 100_000]
)
def test_absurd_values_are_refused(tmp_path: Path, value: str) -> None:
    path = written(tmp_path)
    text = (path / checkpoint.META).read_text()
    (path / checkpoint.META).write_text(text.replace('"p"', value))
    with pytest.raises(checkpoint.CheckpointUnreadable, match=f"damaged.*{'nest|recursion|number|digits|digest'}"):
        checkpoint.read(path)


def test_an_absurd_size_is_refused_without_reading_it(tmp_path: Path) -> None:
    path = written(tmp_path)
    for name, complaint in ((checkpoint.META, "more than"), ("learner.safetensors", "more than this machine's memory")):
        whole = (path / name).read_bytes()
        os.truncate(path / name, 1 << 42)
        with pytest.raises(checkpoint.CheckpointUnreadable, match=complaint):
            checkpoint.read(path)
        (path / name).write_bytes(whole)


def test_files_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        path = written(tmp_path)
    finally:
        os.umask(before)
    assert {each.stat().st_mode & 0o777 for each in path.iterdir()} == {0o640}
    assert path.stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize("most_bytes", [0, 100, 300])
def test_a_full_disk_is_an_oserror_and_leaves_nothing_but_the_old_one(tmp_path: Path, most_bytes: int) -> None:
    path = written(tmp_path)
    for target in (path, checkpoint.step_path(tmp_path, 20)):
        with full_disk(most_bytes), pytest.raises(OSError, match="File too large"):
            checkpoint.write(target, GROUPS, {"pipeline": "new"})
        assert [each.name for each in path.parent.iterdir()] == [path.name]
        assert checkpoint.read(path).meta["pipeline"] == "p"


CALLS = ("mkdir", "rename", "replace", "unlink", "rmdir", "fsync", "link", "symlink")
"""Calls that change a directory or say that the disk has something."""


def killed_before(number: int, act: Callable[[], object]) -> bool:
    """Do something in a child that is killed before its so-and-so-many-th of CALLS; return whether it got there."""
    child = os.fork()
    if not child:
        left = number

        def counting(call: Any) -> Any:
            def counted(*args: Any, **more: Any) -> Any:
                nonlocal left
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return call(*args, **more)

            return counted

        for name in CALLS:
            setattr(os, name, counting(getattr(os, name)))
        act()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


ACTS: dict[str, Callable[[Path], object]] = {
    "replace": lambda run: checkpoint.write(checkpoint.step_path(run, 30), GROUPS, {"pipeline": "new"}),
    "write": lambda run: checkpoint.write(checkpoint.step_path(run, 40), GROUPS, {"pipeline": "new"}),
    "keep": lambda run: checkpoint.keep_last(run, 1),
    "best": lambda run: checkpoint.mark_best(checkpoint.step_path(run, 30)),
    "bring": lambda run: checkpoint.bring(checkpoint.step_path(run, 10), checkpoint.step_path(run, 30)),
}


@pytest.mark.parametrize("act", ACTS)
def test_killed_at_any_moment_there_is_a_whole_checkpoint(tmp_path: Path, act: str) -> None:
    killed, number = True, 0
    while killed:
        run = tmp_path / str(number)
        for steps in (10, 20, 30):
            written(run, steps)
        checkpoint.mark_best(checkpoint.step_path(run, 30))
        killed = killed_before(number, lambda run=run: ACTS[act](run))
        for best in (False, True):
            found = checkpoint.read(checkpoint.find(run, best=best))
            assert found.meta["pipeline"] in ("p", "new"), number
            assert checkpoint.step_of(found.path.resolve()) in (30, 40), number
        assert checkpoint.read(checkpoint.find(checkpoint.step_path(run, 30))).groups["learner"]["step"] == 7
        written(run, 50)
        assert not [each.name for each in (run / "checkpoints").glob(".*step-*")], number
        for path in (run / "checkpoints").glob("step-*"):
            checkpoint.read(path)
        number += 1
    assert number > 2, "it was killed at several moments"


def test_checkpoints_are_ordered_by_their_steps(tmp_path: Path) -> None:
    paths = [written(tmp_path, steps) for steps in (9 * 10**11, 2 * 10**12)]
    assert checkpoint.find(tmp_path) == paths[1]


def stored(file: Path, header: Any, data: int) -> str:
    """Write a safetensors file by hand, with so many zero bytes of data; return its digest."""
    head = header if isinstance(header, bytes) else json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with file.open("wb") as stream:
        stream.write(len(head).to_bytes(8, "little") + head)
        stream.truncate(8 + len(head) + data)
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def entry(kind: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": kind, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize(
    "header",
    [
        b"", b"{", b"[]", b"3", b'"text"', b"\xff", b"[" * 9000, {"a": 3}, {"a": {}}, {"a": entry("BF16", (4,))},
        {"a": entry(shape=(3,))}, {"a": entry(shape=(2.0,))}, {"a": entry(shape=(-2, -1))}, {"a": entry(shape="ab")},
        {"a": entry(shape=3)}, {"a": entry(shape=(True, 2))}, {"a": entry(shape=[1] * 70 + [2])},
        {"a": entry(shape=[2**62] * 9)}, {"a": entry(offsets=(0, 4), shape=(1,))}, {"a": entry(offsets=(0, 16))},
        {"a": entry(offsets=(-8, 0))}, {"a": entry(offsets=(0,))}, {"a": entry(offsets=None)}, {},
        {"a": entry(), "b": entry()}, {"a": entry("U8", (2,), (0, 2)), "b": entry("U16", (3,), (2, 8)), "c": entry()},
        {"a": entry("U8", (1,), (0, 1)), "b": entry("U8", (3,), (1, 4)), "c": entry("F32", (1,), (4, 9))},
        {"a": entry("U8", (2,), (0, 2)), "b": entry("F32", (1,), (2, 6)), "c": entry("U8", (2,), (6, 8))},
    ],
)  # fmt: skip
def test_a_header_that_does_not_fit_its_file_is_refused(tmp_path: Path, header: Any) -> None:
    digest = stored(tmp_path / "a.safetensors", header, 8)
    with pytest.raises(checkpoint.CheckpointUnreadable, match=r"cannot be read \(.*\): use another checkpoint"):
        checkpoint_files.read_arrays(tmp_path / "a.safetensors", digest)


def test_arrays_are_the_same_as_the_library_reads_and_may_be_written_to(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    file = tmp_path / "a.safetensors"
    kinds = [kind for kind in checkpoint_files.DTYPE_NAMES if kind != np.bool_]
    arrays = {str(kind): np.arange(6).astype(kind).reshape(2, 3) for kind in kinds}
    save_file(arrays | {"none": np.zeros((0, 3), np.float32), "one": np.array(7)}, file, {"by": "somebody"})
    found = checkpoint_files.read_arrays(file, hashlib.sha256(file.read_bytes()).hexdigest())
    theirs = load_file(file)
    assert found.keys() == theirs.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, theirs[name])
        assert (array.dtype, array.shape, type(array)) == (theirs[name].dtype, theirs[name].shape, np.ndarray)
        assert array.flags.aligned and array.flags.c_contiguous
        array[...] = 1
    np.testing.assert_array_equal(load_file(file)["float32"], arrays["float32"])


READ = """
import resource, sys
from pathlib import Path
from hotloop.training.run import checkpoint_files
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
(array,) = checkpoint_files.read_arrays(Path(sys.argv[1]), sys.argv[2]).values()
print(array.nbytes >> 20, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before >> 10)
"""


def test_an_array_takes_no_memory_before_its_shape_was_looked_at(tmp_path: Path) -> None:
    """A file of 3 GB, in which no training believes, took 6 GB of memory before it was refused."""
    size = 512 << 20
    digest = stored(tmp_path / "a.safetensors", {"x": entry("U8", (size,), (0, size))}, size)
    words = [sys.executable, "-c", READ, str(tmp_path / "a.safetensors"), digest]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    megabytes, taken = map(int, done.stdout.split())
    assert megabytes == 512
    assert taken < 100
