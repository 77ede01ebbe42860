"""Stacks by number: each is written down once, without hotloop's own frames."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from collections.abc import Iterator
from types import FrameType

import numpy as np

from hotloop.profiling.recorder import own_files, stack_book
from hotloop.profiling.recorder.own_files import is_own
from hotloop.profiling.recorder.python_sampler import PythonSampler
from hotloop.profiling.recorder.samples import MAX_DEPTH
from hotloop.profiling.recorder.stack_book import StackBook
from hotloop.spans import registry


def here() -> FrameType:
    return sys._getframe()


def waiting() -> Iterator[int]:
    yield 1


class Sampled:
    """A book that is filled as by the sampler, with frames that a test chooses."""

    def __init__(self) -> None:
        self.sampler, self.book = PythonSampler(), StackBook()

    def number(self, frame: FrameType | None) -> int:
        number = self.sampler._number_stack(frame)
        taken = self.sampler.take()
        self.book.add(taken.codes, taken.stacks)
        return int(self.book.numbers(np.array([number]))[0])


def written(sampled: Sampled, kind: str) -> list[dict]:
    return [entry for entry in sampled.book.fresh if entry["is"] == kind]


def test_a_stack_has_one_number_and_is_written_down_once():
    book = Sampled()
    suspended = waiting()
    next(suspended)
    frame = suspended.gi_frame
    first, second = book.number(frame), book.number(frame)
    assert first == second == 0
    assert [entry["id"] for entry in written(book, "stack")] == [0]
    frames = {entry["id"]: entry for entry in written(book, "frame")}
    innermost = frames[written(book, "stack")[0]["frames"][0]]
    assert innermost["function"] == "waiting"
    assert innermost["file"] == __file__
    assert innermost["text"] == "yield 1"
    assert innermost["own"]
    json.dumps(book.book.fresh)


def test_another_line_is_another_stack():
    book = Sampled()
    numbers = []
    frame = sys._getframe()
    numbers.append(book.number(frame))
    numbers.append(book.number(frame))
    assert len(set(numbers)) == 2


def test_no_more_stacks_than_the_book_holds(monkeypatch):
    monkeypatch.setattr(stack_book, "MAX_STACKS", 1)
    book = Sampled()
    assert book.number(here()) == 0
    assert book.number(sys._getframe()) == -1
    assert len(written(book, "stack")) == 1


def test_hotloops_own_frames_are_left_out():
    book = Sampled()
    seen = []

    @registry.span("sampler.test")
    def inner() -> None:
        seen.append(book.number(sys._getframe()))

    inner()
    assert not [entry for entry in written(book, "frame") if "hotloop/spans/" in entry["file"]]
    assert next(entry["function"].rpartition(".")[2] for entry in written(book, "frame")) == "inner"


def test_deep_recursion_is_cut():
    book = Sampled()

    def down(n: int) -> int:
        return book.number(sys._getframe()) if n == 0 else down(n - 1)

    down(200)
    assert len(written(book, "stack")[0]["frames"]) == MAX_DEPTH


def test_whose_code_a_file_is():
    assert is_own(__file__)
    assert not is_own(sysconfig.get_path("stdlib") + "/random.py")
    assert not is_own("/anywhere/site-packages/torch/nn.py")
    assert not is_own(stack_book.__file__)
    assert not is_own("<string>")
    assert not is_own("<frozen importlib>")


def as_if_in(file: str, body: str = "def work():\n    return sys._getframe()\n", **names):
    """A function whose code says that it stands in a file."""
    found = {"sys": sys, **names}
    exec(compile(body, file, "exec"), found)
    return found["work"]


CALLS = "def work():\n    return inner()\n"
PIPELINE = os.path.join(own_files.TRAINING, "pipelines", "dqn_snake.py")
COMMAND = own_files.STARTERS[0] + "train.py"


def stack_of(frame) -> list[dict]:
    book = Sampled()
    book.number(frame)
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
