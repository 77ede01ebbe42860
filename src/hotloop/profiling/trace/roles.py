"""What the user's functions are for, by how data flows through them: environment, acting, storing, sampling.

The flow is known from the windows in which the main thread was followed. Steps of known environments and calls of
networks are certain; the rest follows from them, never from names that a user chose:

- a function that takes a chosen action, and whose result, or what it leaves in objects, goes into the next choice, is a
  step of an environment;
- one whose result becomes the action of a step acts;
- one that puts what came out of a step into a container stores;
- one that reads such a container and does not act samples;
- one that makes the input of the next choice from what came out of a step observes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from hotloop.phases import Phase
from hotloop.profiling.trace.observed import Observed, Row
from hotloop.profiling.trace.reading.json_schemas import ObservedPlace

Function = tuple[str, str, int]
"""File, qualified name and first line of a function."""
MOSTLY = 0.6
"""A function has a role if it has it in this part of its calls."""
LEAST_CALLS = 3
LEAST_TAKEN = 2
"""So many of its calls take an action that a network or a table gave: others may be random, to explore."""
MOST_LABELS = 12
"""Of an object: the newest."""
CHOICES = frozenset(["argmax", "argmin"])
"""Last parts of the names of library functions that choose; `max` and `min` of one container do, too."""
PUTS = frozenset(
    [
        "append",
        "appendleft",
        "extend",
        "add",
        "insert",
        "put",
        "put_nowait",
        "copy_",
        "index_copy_",
        "update",
        "__setitem__",
    ]
)
"""Last parts of the names of methods that put something into a container or tensor."""
LEARNING = ("torch._tensor.Tensor.backward", "torch.autograd.backward", "torch.autograd.grad")
SAME_OBJECT = frozenset({"LOAD_ATTR", "BINARY_SUBSCR", "FOR_ITER", "UNPACK_SEQUENCE"})
"""Operations whose result is often an object that was there before."""
CHOICE, RETURNED, LEFT = "choice", "returned", "left"
Label = tuple[str, int]
"""What an object comes from, by number: a choice, or a call of one of the user's functions that returned it or left it
in another object."""


@dataclass(slots=True, eq=False)
class _Call:
    """A call of one of the user's functions."""

    function: Function
    number: int
    frame: int
    parent: _Call | None
    results: tuple[int, ...] = ()
    choice: int = 0
    """Number of the choice that it makes, if it is a network's."""
    took_choice: bool = False
    took_new: bool = False
    """Whether it took what came out of the newest step."""
    after: frozenset[Function] = frozenset()
    """Functions called since the choice that it took, whose results it took, too."""
    fed_choice: bool = False
    returned_to_choice: bool = False
    gave_action: bool = False
    learns: bool = False
    steps: bool = False
    """Whether a step of an environment is made in it."""
    stores: bool = False
    reads: bool = False
    chooses: bool = False


@dataclass(slots=True)
class _Votes:
    """Roles of the calls of a function."""

    calls: int = 0
    step: int = 0
    fed: int = 0
    act: int = 0
    store: int = 0
    sample: int = 0
    observe: int = 0
    after: Counter[Function] = field(default_factory=Counter)
    callers: Counter[Function] = field(default_factory=Counter)


def find_roles(observed: Observed, steps: Collection[str], networks: Collection[str]) -> dict[Function, Phase]:
    """Return the phase of each function of the user's that has a role.

    Args:
        observed: What was seen.
        steps: Names of what is known to step an environment: "CartPoleEnv.step".
        networks: Names of the classes of networks.
    """
    found: dict[Function, Phase] = {}
    if not steps:
        votes = _count(observed, frozenset(), frozenset(), frozenset(networks))
        stepping = {
            function for function, each in votes.items() if each.step >= LEAST_TAKEN and _is_mostly(each.fed, each)
        }
        # What takes the result of a step as well as the action learns from it, or stores it.
        late = {function for function in stepping if (set(votes[function].after) & stepping) - {function}}
        stepping -= late
        # A step that calls another is the environment; so is all that it calls.
        inner = {function for function in stepping if set(votes[function].callers) & stepping}
        found = dict.fromkeys(stepping - inner, Phase.ENV)
    own = frozenset(found)
    for function, each in _count(observed, frozenset(steps), own, frozenset(networks)).items():
        if function in own:
            continue
        by_phase = {
            Phase.ACT: each.act,
            Phase.STORE: each.store,
            Phase.OBSERVE: each.observe,
            Phase.SAMPLE: each.sample,
        }
        for phase, n in by_phase.items():
            if _is_mostly(n, each):
                found[function] = phase
                break
    return found


def _is_mostly(n: int, votes: _Votes) -> bool:
    return n >= LEAST_CALLS and n >= MOSTLY * votes.calls


def _count(
    observed: Observed, steps: frozenset[str], own_steps: frozenset[Function], networks: frozenset[str]
) -> dict[Function, _Votes]:
    found: dict[Function, _Votes] = {}
    stored: set[int] = set()
    for window in observed.windows:
        reading = _Reading(steps, own_steps, networks, stored)
        for row in window:
            reading.read(row)
        # The last call of each function in a window may not have been seen to its end.
        last = {call.function: call for call in reading.calls}
        for call in reading.calls:
            if call is last[call.function]:
                continue
            votes = found.setdefault(call.function, _Votes())
            votes.calls += 1
            if call.parent is not None:
                votes.callers[call.parent.function] += 1
            if call.learns or call.steps:
                continue
            votes.step += call.took_choice and call.fed_choice
            votes.fed += call.fed_choice
            votes.after.update(call.after)
            votes.act += call.gave_action
            votes.store += call.stores and not call.gave_action
            observes = call.took_new and call.returned_to_choice and not call.stores
            votes.observe += observes and not call.gave_action
            votes.sample += call.reads and not (call.stores or call.gave_action or observes)
    return found


class _Reading:
    """Reads the rows of a window in order."""

    def __init__(
        self, steps: frozenset[str], own_steps: frozenset[Function], networks: frozenset[str], stored: set[int]
    ) -> None:
        self.calls: list[_Call] = []
        self._steps, self._own_steps, self._networks = steps, own_steps, networks
        self._stored = stored
        """Containers that what came out of steps was put into."""
        self._labels: dict[int, frozenset[Label]] = {}
        self._open: list[_Call] = []
        self._awaited: Row | None = None
        """The last call, if its function is the user's own: its results come when it returns."""
        self._awaited_choice = self._choices = 0
        self._calls_at: dict[int, int] = {}
        """Number of calls before each choice."""
        self._seen_choice: dict[Function, int] = {}
        """The newest choice at the last call of a function."""
        self._from_env: dict[int, int] = {}
        """Objects that came out of the newest step, by its number."""
        self._n_steps = 0
        self._is_stepping: _Call | None = None

    def read(self, row: Row) -> None:
        """Read a row."""
        place = row.place
        if place.operation == "FUNCTION":
            self._enter(row)
            return
        self._awaited = None
        self._leave_to(row.frame)
        labels = self._labels_of(row.operands)
        match place.operation:
            case "CALL" | "CALL_FUNCTION_EX":
                self._call(row, labels)
                return
            case "STORE_SUBSCR":
                self._put(row.operands[0], row.operands[1])
            case "STORE_ATTR":
                self._leave_in_object(row.operands[0])
            case "LIST_APPEND" | "SET_ADD" | "LIST_EXTEND" | "SET_UPDATE" | "DICT_UPDATE":
                self._label((row.operands[0],), self._labels_of(row.operands), keep=True)
            case "BINARY_SUBSCR" | "GET_ITER" if row.operands[0] in self._stored:
                self._mark_reading()
            case _:
                pass
        self._label(row.results, labels, keep=place.operation in SAME_OBJECT)
        self._pass_on(row)

    def _labels_of(self, objects: tuple[int, ...]) -> frozenset[Label]:
        found = frozenset(label for each in objects for label in self._labels.get(each, ()))
        if len(found) > MOST_LABELS:
            return frozenset(sorted(found, key=lambda label: -label[1])[:MOST_LABELS])
        return found

    def _label(self, objects: tuple[int, ...], labels: frozenset[Label], keep: bool) -> None:
        for each in objects:
            if each:
                self._labels[each] = labels | self._labels.get(each, frozenset()) if keep else labels

    def _pass_on(self, row: Row) -> None:
        """What is made of something that came out of a step came out of it, too."""
        newest = max((self._from_env.get(each, 0) for each in row.operands), default=0)
        for each in row.results:
            if newest and each:
                self._from_env[each] = newest

    def _enter(self, row: Row) -> None:
        place = row.place
        parent = self._open[-1] if self._open else None
        call = _Call((place.file, place.function, place.first_line), len(self.calls), row.frame, parent)
        if self._awaited is not None:
            call.results, call.choice = self._awaited.results, self._awaited_choice
            self._awaited = None
        labels = self._labels_of(row.operands)
        taken = [n for kind, n in labels if kind == CHOICE and n > self._seen_choice.get(call.function, 0)]
        # An action was chosen since the last call.
        call.took_choice = bool(taken)
        since = self._calls_at.get(min(taken, default=0), len(self.calls))
        call.after = frozenset(self.calls[n].function for kind, n in labels if kind != CHOICE and n >= since)
        call.took_new = any(self._from_env.get(each, 0) == self._n_steps > 0 for each in row.operands)
        self._seen_choice[call.function] = self._choices
        self.calls.append(call)
        self._open.append(call)
        if call.function in self._own_steps:
            self._step(row.operands)
            self._is_stepping = call

    def _leave_to(self, frame: int) -> None:
        """Close the calls that have returned, since this frame goes on."""
        if any(call.frame == frame for call in self._open):
            while self._open[-1].frame != frame:
                self._close(self._open.pop())
        else:
            # A frame from before the window, or a generator: the calls that were open have returned to it.
            while self._open:
                self._close(self._open.pop())

    def _close(self, call: _Call) -> None:
        made = frozenset({(CHOICE, call.choice)}) if call.choice else frozenset()
        self._label(call.results, made | {(RETURNED, call.number)}, keep=not call.choice)
        if call is self._is_stepping:
            self._is_stepping = None
            for each in call.results:
                self._from_env[each] = self._n_steps

    def _call(self, row: Row, labels: frozenset[Label]) -> None:
        place, name = row.place, row.place.callee.rpartition(".")[2]
        if place.callee in LEARNING:
            for each in self._open:
                each.learns = True
        if is_step(place.callee, self._steps):
            self._step(row.operands)
            for each in row.results:
                self._from_env[each] = self._n_steps
        is_network = name in self._networks
        chooses = name in CHOICES or (name in ("max", "min") and len(row.operands) == 2)
        if is_network or (chooses and not _is_own(place)):
            self._choose(row, labels, is_network)
            return
        # The first operand is what is called; of a method, the second is its object.
        if name in PUTS and len(row.operands) >= 3:
            for each in row.operands[2:]:
                self._put(each, row.operands[1])
        if any(each in self._stored for each in row.operands):
            self._mark_reading(name in PUTS or name == "len")
        self._awaited, self._awaited_choice = row, 0
        self._label(row.results, labels, keep=False)
        self._pass_on(row)

    def _choose(self, row: Row, labels: frozenset[Label], is_network: bool) -> None:
        self._choices += 1
        for kind, number in labels:
            if kind != CHOICE:
                self.calls[number].fed_choice = True
                self.calls[number].returned_to_choice |= kind == RETURNED
        self._calls_at[self._choices] = len(self.calls)
        for each in self._open:
            each.chooses = True
        if any(each in self._stored for each in row.operands):
            self._mark_reading()
        self._awaited, self._awaited_choice = row if is_network else None, self._choices
        self._label(row.results, frozenset({(CHOICE, self._choices)}), keep=False)

    def _step(self, operands: tuple[int, ...]) -> None:
        self._n_steps += 1
        for kind, number in self._labels_of(operands[1:] or operands):
            if kind == RETURNED:
                self.calls[number].gave_action = self.calls[number].chooses
        for each in self._open:
            each.steps = True

    def _leave_in_object(self, value: int) -> None:
        outs = frozenset((LEFT, call.number) for call in self._open)
        self._label((value,), outs, keep=True)

    def _put(self, value: int, container: int) -> None:
        outs = frozenset((LEFT, call.number) for call in self._open)
        self._label((value, container), outs, keep=True)
        if self._n_steps and self._from_env.get(value) == self._n_steps and self._is_stepping is None:
            self._stored.add(container)
            for call in self._open[-1:]:
                call.stores = True

    def _mark_reading(self, only_looks: bool = False) -> None:
        for call in self._open[-1:]:
            call.reads = call.reads or not only_looks


def is_step(callee: str, steps: Collection[str]) -> bool:
    """Return whether a callee is one of the steps of known environments."""
    return any(callee == each or callee.endswith("." + each) for each in steps)


def _is_own(place: ObservedPlace) -> bool:
    """Return whether a callee is a function of the user's module."""
    return place.callee.startswith("__main__.")
