"""Published weights: never torn, always the newest, other shapes rejected."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.collecting import light_weights

from hotloop.training.collect import CollectError, weights
from hotloop.training.collect.weights import Publisher, Subscriber

READER = """
import pickle, sys
from hotloop.training.collect.weights import Subscriber
reader = Subscriber(pickle.loads(bytes.fromhex(sys.argv[1])))
print("ready", flush=True)
reads = 0
while reader.version < int(sys.argv[2]):
    found = reader.read()
    if found is not None:
        reads += 1
        for each in found.values():
            assert (each == reader.version).all(), (reader.version, each)
print(reads)
"""


def same(value: float, size: int = 60_000) -> dict[str, np.ndarray]:
    return {"w": np.full(size, value, np.float32), "b": np.full((3, 5), value)}


def test_weights_are_read_as_published() -> None:
    generator = np.random.default_rng(0)
    arrays = {"a": generator.random((3, 4)), "b": generator.integers(0, 9, 5), "c": np.array(True), "d": np.zeros(0)}
    publisher = Publisher(arrays)
    reader = Subscriber(pickle.loads(pickle.dumps(publisher.handle())))
    found = reader.read()
    assert found is not None and reader.version == publisher.version == 1
    for name, each in arrays.items():
        np.testing.assert_array_equal(found[name], each)
        assert found[name].dtype == each.dtype
    assert reader.read() is None
    assert publisher.publish(arrays | {"a": arrays["a"] + 1}) == 2
    again = reader.read()
    assert again is not None and reader.version == 2
    np.testing.assert_array_equal(again["a"], arrays["a"] + 1)
    publisher.close()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=8))
def test_a_reader_that_is_overtaken_reads_again(published: list[int]) -> None:
    """During the k-th copy, `published[k]` new versions are published half-way through it."""
    publisher = Publisher(same(1, 100))
    reader = Subscriber(publisher.handle())
    copy, moments = np.copyto, iter(published)

    def copy_slowly(mine: np.ndarray, theirs: np.ndarray) -> None:
        half = len(mine) // 2
        copy(mine[:half], theirs[:half])
        for _ in range(next(moments, 0)):
            publisher.publish(same(publisher.version + 1, 100))
        copy(mine[half:], theirs[half:])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weights.np, "copyto", copy_slowly)
        found = reader.read()
    assert found is not None
    for each in found.values():
        assert (each == reader.version).all()
    # At most one version may be published during a copy that counts.
    assert publisher.version - reader.version <= 1
    publisher.close()


def test_a_publisher_killed_while_writing_leaves_the_last_version_readable() -> None:
    publisher = Publisher(same(1, 100))
    reader = Subscriber(publisher.handle())
    publisher._versions[weights.STARTED] = 2
    publisher._copies[0]["w"][:50] = 2
    found = reader.read()
    assert found is not None and reader.version == 1
    assert (found["w"] == 1).all()
    publisher.close()


def test_no_reader_ever_sees_torn_weights() -> None:
    publisher, last = Publisher(same(1)), 3000
    command = [sys.executable, "-c", READER, pickle.dumps(publisher.handle()).hex(), str(last)]
    readers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for reader in readers:
        assert reader.stdout is not None and reader.stdout.readline() == "ready\n"
    arrays = same(0)
    for version in range(2, last + 1):
        for each in arrays.values():
            each[...] = version
        publisher.publish(arrays)
    for reader in readers:
        reads, _ = reader.communicate()
        assert reader.returncode == 0
        assert 1 <= int(reads) <= last
    publisher.close()


def test_weights_of_other_names_or_shapes_are_rejected() -> None:
    publisher = Publisher(light_weights())
    with pytest.raises(CollectError, match=r"weights a, b were published where a, b, c were"):
        publisher.publish({name: each for name, each in light_weights().items() if name != "c"})
    with pytest.raises(CollectError, match=r"'b' are float64 \[8\] where they were float64 \[7\]"):
        publisher.publish(light_weights() | {"b": np.zeros(8)})
    with pytest.raises(CollectError, match=r"'a' are float64 .* where they were float32"):
        publisher.publish(light_weights() | {"a": np.zeros((40, 50))})
    with pytest.raises(CollectError, match="no weights"):
        Publisher({})
    assert publisher.version == 1
    publisher.close()


def test_torch_tensors_can_be_published() -> None:
    torch = pytest.importorskip("torch")
    from hotloop.training.collect.interface import as_arrays

    layer = torch.nn.Linear(2, 3)
    publisher = Publisher(as_arrays(layer.state_dict()))
    found = Subscriber(publisher.handle()).read()
    assert found is not None
    np.testing.assert_array_equal(found["weight"], layer.weight.detach().numpy())
    publisher.close()
