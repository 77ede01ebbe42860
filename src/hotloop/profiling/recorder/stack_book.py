"""Numbers for frames and stacks as they are written to disk: each once, with its line, without hotloop's own frames."""

from __future__ import annotations

import functools

import numpy as np

from hotloop.json_types import Json
from hotloop.profiling.recorder.line_table import UNIT_BYTES, Position, positions
from hotloop.profiling.recorder.own_files import PACKAGE, STARTERS, TRAINING, is_own
from hotloop.profiling.recorder.privacy.redact_source import redacted_source_line
from hotloop.profiling.recorder.samples import CodeRow, Ints, StackRow, Taken

MAX_STACKS = 20_000


@functools.cache
def operation_names() -> list[str]:
    """Return the names of all instructions by number. Those that the interpreter specialised have their plain name."""
    import dis

    plain = getattr(dis, "deoptmap", {})
    names = getattr(dis, "_all_opname", dis.opname)
    return [plain.get(name, name) for name in names]


class StackBook:
    """Numbers stacks by what is written of them: several stacks of the sampler may be the same expression."""

    def __init__(self) -> None:
        self.fresh: list[dict[str, Json]] = []
        """Entries that are not written yet."""
        self._codes: dict[int, CodeRow] = {}
        self._positions: dict[int, list[Position | None]] = {}
        self._frames: dict[tuple[int, Position, str, bool], int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}
        self._number_of: list[int] = []
        """By the sampler's number of a stack: its number on disk, -1 if it has none."""
        self._own: dict[str, bool] = {}

    def add(self, codes: list[CodeRow], stacks: list[StackRow]) -> None:
        """Number what the sampler saw for the first time."""
        self._codes.update((each[0], each) for each in codes)
        self._number_of += [self._number_stack(places) for _, places in stacks]

    def samples_of(self, taken: Taken) -> Ints:
        """Return samples with the numbers of their stacks on disk."""
        self.add(taken.codes, taken.stacks)
        samples = taken.samples.copy()
        samples[:, 2] = self.numbers(samples[:, 2])
        return samples

    def own_files(self) -> list[str]:
        """Return the files of the user that were seen."""
        return sorted(file for file, own in self._own.items() if own)

    def numbers(self, stacks: Ints) -> Ints:
        """Return the numbers on disk of stacks that the sampler numbered; -1 for those that were too many."""
        table = np.array([*self._number_of, -1], np.int64)
        return table[np.clip(stacks, -1, len(table) - 1)]

    def _number_stack(self, places: tuple[tuple[int, int], ...]) -> int:
        """Number a stack not seen before. The recorder's own frames are left out."""
        files = [self._codes[code][1] for code, _ in places]
        # The frames of the command that started hotloop are not part of the training.
        starter = next((i for i, file in enumerate(files) if file.startswith(STARTERS)), len(files))
        ours = not any(self.is_own(file) for file in files[:starter])
        numbered = (self._number_frame(*place, ours) for place in places[:starter])
        stack = tuple(number for number in numbered if number >= 0)
        number = self._stacks.get(stack)
        if number is None:
            if len(self._stacks) >= MAX_STACKS:
                return -1
            number = self._stacks[stack] = len(self._stacks)
            self.fresh.append({"is": "stack", "id": number, "frames": stack})
        return number

    def is_own(self, file: str) -> bool:
        """Check whether a file is the user's own code. Remembers the answer."""
        if file not in self._own:
            self._own[file] = is_own(file)
        return self._own[file]

    def _number_frame(self, code: int, instruction: int, ours: bool) -> int:
        """Return the number of a frame; -1 if it is hotloop's own."""
        position, operation = self._position(code, instruction), self._operation(code, instruction)
        key = code, position, operation, ours
        number = self._frames.get(key)
        if number is not None:
            return number
        _, file, function, *_ = self._codes[code]
        if file.startswith(PACKAGE) and not file.startswith(TRAINING):
            self._frames[key] = -1
            return -1
        own = self.is_own(file) or (ours and file.startswith(TRAINING))
        number = self._frames[key] = len(self._frames)
        self.fresh.append(
            {
                "is": "frame",
                "id": number,
                "function": function,
                "file": file,
                "text": redacted_source_line(file, position.line).strip()[:200] if own else "",
                "own": own,
                "operation": operation,
                "first_line": self._codes[code][3],
                **position._asdict(),
            }
        )
        return number

    def _position(self, code: int, instruction: int) -> Position:
        if code not in self._positions:
            _, _, _, first_line, table, _ = self._codes[code]
            try:
                self._positions[code] = positions(table, first_line)
            except IndexError:
                self._positions[code] = []
        known = self._positions[code]
        at = instruction // UNIT_BYTES
        found = known[at] if at < len(known) else None
        return found or Position(self._codes[code][3])

    def _operation(self, code: int, instruction: int) -> str:
        """Return the name of an instruction, such as "CALL", as it was before the interpreter specialised it."""
        instructions = self._codes[code][5]
        while instruction > 0 and instructions[instruction : instruction + 1] == b"\0":  # data behind an instruction
            instruction -= UNIT_BYTES
        if not 0 <= instruction < len(instructions):
            return ""
        name = operation_names()[instructions[instruction]]
        return "CALL" if name == "PRECALL" else name
