"""What functions and lines are for follows from how data flows through them, whatever they are called."""

from __future__ import annotations

from hotloop.phases import Phase
from hotloop.profiling.trace.observed import Observed
from hotloop.profiling.trace.reading.json_schemas import ObservedPlace, ObservedRecord, ObservedWindow
from hotloop.profiling.trace.roles import find_roles
from hotloop.profiling.trace.slices import Known, find_line_roles

FILE = "/me/train.py"
ROUNDS = 8


class Script:
    """Writes the rows of a window: objects and places are called by names."""

    def __init__(self) -> None:
        self.places: dict[tuple[str, int, str, str], ObservedPlace] = {}
        self.rows: list[str] = []
        self.objects: dict[str, int] = {}
        self.frames = [1]

    def do(self, function: str, line: int, operation: str, given: str, made: str = "", callee: str = "") -> None:
        place = self.places.setdefault(
            (function, line, operation, callee),
            ObservedPlace(len(self.places), FILE, function, 1, line, line, 0, 9, operation, callee, ()),
        )
        objects = [self.objects.setdefault(name, len(self.objects) + 1) for name in [*given.split(), *made.split()]]
        self.rows.append(" ".join(map(str, [place.id, self.frames[-1], len(given.split()), *objects])))

    def call(self, function: str, line: int, callee: str, given: str, made: str) -> None:
        """Call a function of the user's own; its rows follow, until `end`."""
        self.do(function, line, "CALL", f"code.{callee} {given}", made, f"__main__.{callee}")
        self.frames.append(max(self.frames) + 1 + len(self.rows))
        self.do(callee, 100, "FUNCTION", given)

    def end(self) -> None:
        self.frames.pop()

    def observed(self) -> Observed:
        return Observed(ObservedRecord(tuple(self.places.values()), (ObservedWindow({}, tuple(self.rows)),)))


def mine(script: Script) -> None:
    """A tabular agent in a game of the user's own: look, choose, dig, keep, learn from what was kept."""
    script.do("main", 1, "BUILD_LIST", "nothing", "kept")
    for i in range(ROUNDS):
        script.call("main", 10, "Mine.look", f"mine place{i}", f"seen{i}")
        script.do("Mine.look", 50, "BINARY_OP", f"place{i} one", f"seen{i}")
        script.do("Mine.look", 51, "RETURN_VALUE", f"seen{i}")
        script.end()
        script.do("main", 11, "BINARY_SUBSCR", f"table seen{i}", f"values{i}")
        script.do("main", 12, "CALL", f"code.argmax values{i}", f"tunnel{i}", "numpy.argmax")
        script.call("main", 13, "Mine.dig", f"mine tunnel{i}", f"place{i + 1}")
        script.do("Mine.dig", 60, "BINARY_OP", f"tunnel{i} two", f"place{i + 1}")
        script.do("Mine.dig", 61, "RETURN_VALUE", f"place{i + 1}")
        script.end()
        script.call("main", 14, "Shelf.lay", f"shelf place{i + 1} tunnel{i}", "none")
        script.do("Shelf.lay", 70, "CALL", f"code.append kept place{i + 1}", "none", "list.append")
        script.end()
        script.call("main", 15, "Shelf.take", "shelf", f"drawn{i}")
        script.do("Shelf.take", 80, "BINARY_SUBSCR", "kept index", f"drawn{i}")
        script.do("Shelf.take", 81, "RETURN_VALUE", f"drawn{i}")
        script.end()
        script.do("main", 16, "STORE_SUBSCR", f"drawn{i} other index")


def test_a_game_of_any_name_is_the_environment_and_a_shelf_is_storage():
    script = Script()
    mine(script)
    found = {function: phase for (_, function, _), phase in find_roles(script.observed(), (), ()).items()}
    assert found == {
        "Mine.dig": Phase.ENV,
        "Mine.look": Phase.OBSERVE,
        "Shelf.lay": Phase.STORE,
        "Shelf.take": Phase.SAMPLE,
    }


def test_without_a_choice_nothing_is_an_environment():
    script = Script()
    for i in range(ROUNDS):
        script.call("main", 10, "f", f"a x{i}", f"x{i + 1}")
        script.do("f", 20, "BINARY_OP", f"x{i} one", f"x{i + 1}")
        script.end()
    assert find_roles(script.observed(), (), ()) == {}


def test_few_calls_say_nothing():
    script = Script()
    mine(script)
    short = Observed(ObservedRecord(script.observed().record.places, (ObservedWindow({}, tuple(script.rows[:30])),)))
    assert find_roles(short, (), ()) == {}


def test_lines_between_the_observation_and_the_step_act_and_those_before_the_loss_are_its_forward_pass():
    script = Script()
    for i in range(ROUNDS):
        script.do("main", 10, "CALL", f"code.from_numpy seen{i}", f"input{i}", "torch.from_numpy")
        script.do("main", 11, "CALL", f"net input{i}", f"q{i}", "__main__.Net")
        script.do("main", 12, "CALL", f"code.item q{i}", f"action{i}", "torch.Tensor.item")
        script.do("main", 13, "CALL", f"code.step env action{i}", f"seen{i + 1}", "gymnasium.Env.step")
        script.do("main", 20, "CALL", f"code.stack memory{i}", f"batch{i}", "torch.stack")
        script.do("main", 21, "CALL", f"net batch{i}", f"value{i}", "__main__.Net")
        script.do("main", 22, "BINARY_OP", f"value{i} target", f"loss{i}")
        script.do("main", 23, "CALL", f"code.backward loss{i}", "none", "torch._tensor.Tensor.backward")
    lines = find_line_roles(script.observed(), Known(("Env.step",), (), ("Net",)))
    assert {line: phase for (_, line), phase in lines.items()} == {
        10: Phase.OBSERVE,
        11: Phase.ACT,
        12: Phase.ACT,
        20: Phase.SAMPLE,
        21: Phase.FORWARD,
        22: Phase.FORWARD,
    }


def test_what_came_before_a_step_is_not_part_of_the_next_observation():
    script = Script()
    for i in range(ROUNDS):
        script.do("main", 5, "BINARY_OP", f"seen{i} one", f"noise{i}")
        script.do("main", 13, "CALL", f"code.step env noise{i}", f"seen{i + 1}", "gymnasium.Env.step")
    lines = find_line_roles(script.observed(), Known(("Env.step",), (), ()))
    assert {line for _, line in lines} == {5}
