"""Storage of a replay: shared memory with writers in other processes, killed ones too; files; no leaks."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hotloop.clock import now_ns
from hotloop.training.replay import FrameReplay, FrameWriter, ReplayError, StorageError, VectorReplay, VectorWriter
from hotloop.training.shared_memory import Field, allocate

SIDE = 16
APART = 5_000_000
TIMEOUT_NS = 100_000_000_000
# Writes steps whose frame, action and reward all encode the time t, in episodes of 20; `end` says how it ends.
WRITER = """
import os, pickle, signal, sys
import numpy as np
from hotloop.training.replay import FrameWriter
handle, begin, steps, end = pickle.loads(bytes.fromhex(sys.argv[1]))
writer = FrameWriter.attach(handle)
assert "torch" not in sys.modules
def write(t):
    no = np.zeros(1, bool)
    frames = [np.full((1, 16, 16), each % 251, np.uint8) for each in (t, t + 1)]
    writer.add(frames[0], np.array([t]), np.array([t], np.float32), no, no if (t + 1) % 20 else ~no, frames[1])
t = begin
while steps is None or t < begin + steps:
    write(t)
    t += 1
    if t == begin + 1:
        print("writing", flush=True)
if end == "die half-way":
    writer.publish = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    write(t)
"""


def until_timeout() -> Iterator[None]:
    """Loop until a timeout that is long enough for a busy machine."""
    end = now_ns() + TIMEOUT_NS
    while now_ns() < end:
        yield


def start_writer(
    replay: FrameReplay, env: int, begin: int = 0, steps: int | None = None, end: str = ""
) -> subprocess.Popen:
    arguments = pickle.dumps((replay.handle(env, 1), begin, steps, end)).hex()
    process = subprocess.Popen([sys.executable, "-c", WRITER, arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "writing\n"
    return process


def end(process: subprocess.Popen) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def shared_replay(length: int, envs: int = 1, **options: object) -> FrameReplay:
    return FrameReplay(length * envs, envs, (SIDE, SIDE), 4, storage="shared", **options)  # type: ignore[arg-type]


def check(replay: FrameReplay, rng: np.random.Generator, batch_size: int = 64) -> set[int]:
    """Sample once and check that every transition is consistent; return the times sampled."""
    batch = replay.sample(batch_size, rng)
    t = batch.action
    start = t - t % 20  # of its episode
    for k in range(4):
        np.testing.assert_array_equal(batch.obs[:, k], whole(np.maximum(t - 3 + k, start)))
        np.testing.assert_array_equal(batch.next_obs[:, k], whole(np.maximum(t - 2 + k, start)))
    np.testing.assert_array_equal(batch.reward, t.astype(np.float32))
    return set(t.tolist())


def whole(times: np.ndarray) -> np.ndarray:
    return np.broadcast_to((times % 251).astype(np.uint8)[:, None, None], (len(times), SIDE, SIDE))


def test_several_processes_write_while_one_samples() -> None:
    replay = shared_replay(400, envs=3)
    writers = [start_writer(replay, env, begin=env * APART) for env in range(3)]
    rng, sampled = np.random.default_rng(0), set()
    for _ in until_timeout():
        if len(replay) >= 64:
            sampled |= check(replay, rng)
        if len(sampled) > 2000 and {t // APART for t in sampled} == {0, 1, 2}:
            break
    for writer in writers:
        end(writer)
    assert len(sampled) > 2000 and {t // APART for t in sampled} == {0, 1, 2}
    replay.close()


def test_a_writer_that_overtakes_the_reader_is_detected() -> None:
    replay = shared_replay(40, guard=2)
    writer = start_writer(replay, 0)
    rng, good = np.random.default_rng(0), 0
    for _ in until_timeout():
        try:
            check(replay, rng, 16)
            good += 1
        except ReplayError as error:
            assert "overtook" in str(error) or "holds" in str(error)
        if good == 100:
            break
    end(writer)
    check(replay, rng, 16)
    replay.close()


def test_a_half_written_step_of_a_killed_writer_is_never_sampled() -> None:
    replay = shared_replay(100)
    rng = np.random.default_rng(0)
    writer = start_writer(replay, 0, steps=10, end="die half-way")
    assert writer.wait() == -signal.SIGKILL
    end(writer)
    sampled = set().union(*(check(replay, rng, 9) for _ in range(20)))
    assert sampled == set(range(9))  # 9 waits for the frame of 10, which was not published
    writer = start_writer(replay, 0, begin=60, steps=10)
    assert writer.wait() == 0
    end(writer)
    sampled = set().union(*(check(replay, rng, 18) for _ in range(40)))
    assert sampled == set(range(9)) | set(range(60, 69))
    replay.close()


def test_writers_killed_at_any_moment_leave_only_complete_steps() -> None:
    replay = shared_replay(300)
    rng, begin = np.random.default_rng(0), 0
    for least in (0, 1, 150, 301):
        writer = start_writer(replay, 0, begin)
        for _ in until_timeout():
            if int(replay.state()["heads"][0]) >= least:
                break
        end(writer)
        begin += 1_000_000
        for _ in range(30):
            if len(replay) >= 64:
                check(replay, rng)
    assert int(replay.state()["heads"][0]) > 300
    replay.close()


def test_an_overtaken_batch_is_drawn_again_a_limited_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    replay = VectorReplay(100, 1, (1,), storage="shared")
    obs, no = np.zeros((1, 1), np.float32), np.zeros(1, bool)
    for k in range(150):
        replay.add(obs, np.array([k]), np.zeros(1, np.float32), no, no, obs)
    draw, calls = replay._sampler.draw, []

    def draw_while_a_writer_runs(*arguments: object) -> object:
        found = draw(*arguments)  # type: ignore[arg-type]
        calls.append(found[0])
        if len(calls) in overtaken:
            replay._ring.heads += 100
        return found

    monkeypatch.setattr(replay._sampler, "draw", draw_while_a_writer_runs)
    overtaken = {1, 2}
    batch = replay.sample(8, np.random.default_rng(0))
    assert len(calls) == 3
    np.testing.assert_array_equal(batch.index, calls[2])
    overtaken = set(range(100))
    with pytest.raises(ReplayError, match=r"overtook 16 batches .* guard .now 12 steps"):
        replay.sample(8, np.random.default_rng(0))
    replay.close()


def open_memory() -> set[str]:
    """The pieces of shared memory that this process has open."""
    return {each.name for each in Path("/proc/self/fd").iterdir() if is_memory(each)}


def is_memory(descriptor: Path) -> bool:
    try:
        return os.readlink(descriptor).startswith("/memfd:hotloop")
    except FileNotFoundError:
        return False  # the descriptor of the directory listing itself


def test_shared_memory_has_no_name_and_only_its_creator_closes_it() -> None:
    named = set(Path("/dev/shm").iterdir())
    replay = shared_replay(100)
    handle = replay.handle()
    writer = FrameWriter.attach(handle)
    assert set(Path("/dev/shm").iterdir()) <= named
    del writer
    gc.collect()
    end(start_writer(replay, 0, steps=1))  # a process that ends does not free it
    FrameWriter.attach(handle)
    assert handle.path.name in open_memory()
    replay.close()
    replay.close()
    assert handle.path.name not in open_memory()
    with pytest.raises(StorageError, match="is gone"):
        FrameWriter.attach(handle)
    assert len(replay) == 0  # still usable here


def test_a_handle_does_not_attach_to_another_file_with_the_same_descriptor(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(bytes(10_000_000))
    with other.open("r+b") as file:
        replay = shared_replay(100)
        handle = replay.handle()
        replay.close()
        number = os.dup2(file.fileno(), int(handle.path.name))
        try:
            with pytest.raises(StorageError, match="is gone"):
                FrameWriter.attach(handle)
        finally:
            os.close(number)


def test_a_dropped_replay_frees_its_memory() -> None:
    gc.collect()
    before = open_memory()
    replay = shared_replay(100)
    assert open_memory() != before
    del replay
    gc.collect()
    assert open_memory() == before


CREATOR = """
import os, signal, sys
from hotloop.training.replay import VectorReplay
replay = VectorReplay(1000, 1, (3,), storage="shared")
print(replay.handle().path, flush=True)
if sys.argv[1] == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1] == "fork":
    if os.fork() == 0:
        del replay
        sys.exit()
    os.wait()
    assert os.path.exists(replay.handle().path)
"""


@pytest.mark.parametrize("how", ["exit", "kill", "fork"])
def test_memory_is_freed_when_its_creator_ends_without_closing(how: str) -> None:
    done = subprocess.run([sys.executable, "-c", CREATOR, how], capture_output=True, text=True)
    assert done.returncode == (-signal.SIGKILL if how == "kill" else 0), done.stderr
    path = Path(done.stdout.strip())
    for _ in until_timeout():
        if not path.exists():
            break
        time.sleep(0.02)  # a killed process needs a moment
    assert not path.exists()
    assert done.stderr == ""


def test_private_memory_has_no_handle() -> None:
    with pytest.raises(ReplayError, match='make the replay with storage="shared"'):
        VectorReplay(8, 1, (1,)).handle()


def test_a_handle_for_missing_environments_is_rejected() -> None:
    replay = VectorReplay(800, 4, (1,), storage="shared")
    with pytest.raises(ReplayError, match=r"2 environments from 3 on .* from 0 to 3"):
        replay.handle(3, 2)
    replay.close()


def test_vector_writers_share_a_replay() -> None:
    replay = VectorReplay(400, 4, (1,), storage="shared")
    writers = [VectorWriter.attach(replay.handle(first, 2)) for first in (0, 2)]
    no = np.zeros(2, bool)
    for k in range(120):
        for number, writer in enumerate(writers):
            obs = np.full((2, 1), 1000 * number + k, np.float32)
            writer.add(obs, np.full(2, k), np.zeros(2, np.float32), no, no, obs + 1)
    batch = replay.sample(64, np.random.default_rng(0))
    np.testing.assert_array_equal(batch.obs[:, 0] % 1000, batch.action)
    np.testing.assert_array_equal(batch.obs[:, 0] // 1000, batch.index % 4 // 2)
    replay.close()


SMALL = """
import resource, sys
from pathlib import Path
import numpy as np
from hotloop.training.replay import FrameReplay, StorageError
replay = FrameReplay(40, 1, (64, 64))
no = np.zeros(1, bool)
def add(replay, t):
    frame = np.full((1, 64, 64), t % 251, np.uint8)
    replay.add(frame, np.array([t]), np.zeros(1, np.float32), no, no, frame)
for t in range(20):
    add(replay, t)
replay.sample(8, np.random.default_rng(0))
used = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (used + 64_000_000, used + 64_000_000))
large = 50_000
try:
    FrameReplay(large, 1, (64, 64))
except StorageError as error:
    print("refused:", error)
replay = FrameReplay(large, 1, (64, 64), storage=Path(sys.argv[1]))
for t in range(large + 500):
    add(replay, t)
for k in range(20):
    batch = replay.sample(64, np.random.default_rng(k))
    assert (batch.obs[:, -1] == (batch.action % 251)[:, None, None]).all()
    assert (batch.next_obs[:, -1] == ((batch.action + 1) % 251)[:, None, None]).all()
print("bytes", replay.nbytes)
"""


def test_a_file_holds_more_than_memory_allows(tmp_path: Path) -> None:
    path = tmp_path / "replay.bin"
    done = subprocess.run([sys.executable, "-c", SMALL, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    refused, size = done.stdout.splitlines()
    assert refused.startswith("refused: a replay of 2") and 'storage=Path("file")' in refused
    assert int(size.split()[1]) > 200_000_000
    assert path.stat().st_size > 200_000_000


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "replay.bin"
    path.write_text("mine")
    with pytest.raises(StorageError, match="is there already"):
        VectorReplay(800, 1, (1,), storage=path)
    assert path.read_text() == "mine"


def test_a_replay_that_does_not_fit_is_rejected_at_once(tmp_path: Path) -> None:
    huge = (Field("x", (1 << 50,), np.dtype(np.uint8)),)
    with pytest.raises(StorageError, match="cannot make a replay of"):
        allocate(huge, tmp_path / "replay.bin")
    assert not list(tmp_path.iterdir())
    with pytest.raises(StorageError, match="does not fit into shared memory"):
        allocate(huge, "shared")
    with pytest.raises(StorageError, match=r"cannot make a replay of .* No such file"):
        allocate((Field("x", (8,), np.dtype(np.uint8)),), tmp_path / "nowhere" / "replay.bin")


def test_a_state_moves_between_kinds_of_storage(tmp_path: Path) -> None:
    first = VectorReplay(800, 2, (1,))
    for k in range(500):
        obs = np.full((2, 1), k, np.float32)
        first.add(obs, np.full(2, k), np.zeros(2, np.float32), np.zeros(2, bool), np.zeros(2, bool), obs)
    second = VectorReplay(800, 2, (1,), storage=tmp_path / "replay.bin")
    second.restore(first.state())
    assert all(np.array_equal(first.state()[name], array) for name, array in second.state().items())


def test_arrays_of_a_block_are_aligned_and_do_not_overlap() -> None:
    fields = tuple(Field(str(k), (size,), np.dtype(np.uint8)) for k, size in enumerate((1, 100, 3 << 20, 7)))
    block = allocate(fields)
    for k, (name, array) in enumerate(block.arrays.items()):
        assert array.ctypes.data % 64 == 0
        assert not array.any()
        array[:] = k + 1
        assert name == str(k)
    assert [int(array[0]) for array in block.arrays.values()] == [1, 2, 3, 4]
    assert [int(array[-1]) for array in block.arrays.values()] == [1, 2, 3, 4]
