"""Stacks by number: each is written down once, without hotloop's own frames."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from collections.abc import Iterator
from types import FrameType

from hotloop.profiling.recorder import stack_sampler as sampler
from hotloop.profiling.recorder.stack_sampler import StackBook, is_own
from hotloop.spans import registry
from hotloop.spans.hot_path import MAX_DEPTH, key_of, places_of


def here() -> FrameType:
    return sys._getframe()


def waiting() -> Iterator[int]:
    yield 1


def numbered(book: StackBook, frame) -> int:
    return book.by_key.get(key_of(frame)) or book.name_stack(places_of(frame), key_of(frame))


def written(book: StackBook, kind: str) -> list[dict]:
    return [entry for entry in book.fresh if entry["is"] == kind]


def test_a_stack_has_one_number_and_is_written_down_once():
    book = StackBook()
    suspended = waiting()
    next(suspended)
    frame = suspended.gi_frame
    first, second = numbered(book, frame), numbered(book, frame)
    assert first == second == 0
    assert [entry["id"] for entry in written(book, "stack")] == [0]
    frames = {entry["id"]: entry for entry in written(book, "frame")}
    innermost = frames[written(book, "stack")[0]["frames"][0]]
    assert innermost["function"] == "waiting"
    assert innermost["file"] == __file__
    assert innermost["text"] == "yield 1"
    assert innermost["own"]
    json.dumps(book.fresh)


def test_another_line_is_another_stack():
    book = StackBook()
    numbers = []
    frame = sys._getframe()
    numbers.append(numbered(book, frame))
    numbers.append(numbered(book, frame))
    assert len(set(numbers)) == 2


def test_no_more_stacks_than_the_book_holds(monkeypatch):
    monkeypatch.setattr(sampler, "MAX_STACKS", 1)
    book = StackBook()
    assert numbered(book, here()) == 0
    assert numbered(book, sys._getframe()) == -1
    assert len(written(book, "stack")) == 1


def test_hotloops_own_frames_are_left_out():
    book = StackBook()
    seen = []

    @registry.span("sampler.test")
    def inner() -> None:
        seen.append(numbered(book, sys._getframe()))

    inner()
    assert not [entry for entry in written(book, "frame") if "hotloop/spans/" in entry["file"]]
    assert next(entry["function"].rpartition(".")[2] for entry in written(book, "frame")) == "inner"


def test_deep_recursion_is_cut():
    book = StackBook()

    def down(n: int) -> int:
        return numbered(book, sys._getframe()) if n == 0 else down(n - 1)

    down(200)
    assert len(written(book, "stack")[0]["frames"]) == MAX_DEPTH


def test_whose_code_a_file_is():
    assert is_own(__file__)
    assert not is_own(sysconfig.get_path("stdlib") + "/random.py")
    assert not is_own("/anywhere/site-packages/torch/nn.py")
    assert not is_own(sampler.__file__)
    assert not is_own("<string>")
    assert not is_own("<frozen importlib>")


def as_if_in(file: str, body: str = "def work():\n    return sys._getframe()\n", **names):
    """A function whose code says that it stands in a file."""
    found = {"sys": sys, **names}
    exec(compile(body, file, "exec"), found)
    return found["work"]


CALLS = "def work():\n    return inner()\n"
PIPELINE = os.path.join(sampler.TRAINING, "pipelines", "dqn_snake.py")
COMMAND = sampler.STARTERS[0] + "train.py"


def stack_of(frame) -> list[dict]:
    book = StackBook()
    numbered(book, frame)
    frames = {entry["id"]: entry for entry in written(book, "frame")}
    return [frames[number] for number in written(book, "stack")[0]["frames"]]


def test_our_own_pipeline_is_what_is_looked_at_where_nobody_elses_code_is_at_work():
    started = as_if_in("/somewhere/bin/hotloop", CALLS, inner=as_if_in(COMMAND, CALLS, inner=as_if_in(PIPELINE)))
    (only,) = stack_of(started())
    assert (only["file"], only["line"], only["own"]) == (PIPELINE, 2, True)


def test_in_somebodys_script_our_parts_are_a_library():
    started = as_if_in(COMMAND, CALLS, inner=as_if_in("/home/me/train.py", CALLS, inner=as_if_in(PIPELINE)))
    inner, outer = stack_of(started())
    assert (inner["file"], inner["own"]) == (PIPELINE, False)
    assert (outer["file"], outer["own"]) == ("/home/me/train.py", True)
