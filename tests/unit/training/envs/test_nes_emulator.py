"""The emulator: memory, picture and states, and one console per process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("stable_retro", reason="stable-retro is not installed: pip install 'hotloop[nes]'")

from hotloop.errors import HotloopError
from hotloop.training.envs.nes import memory_layout
from hotloop.training.envs.nes.emulator import Emulator, EmulatorBusy, mask_of
from hotloop.training.envs.nes.rom import RUNNER
from hotloop.training.envs.nes.start_states import start_level


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    console = Emulator(RUNNER)
    yield console
    console.close()


def test_memory_and_picture_are_read_in_place(emulator: Emulator) -> None:
    """Memory and picture equal stable-retro's copies, and writing to memory changes the game."""
    from stable_retro.data import GameData

    start_level(emulator, 1, 1, runner=True)
    emulator.press(mask_of("RIGHT", "A"))
    emulator.run(20)
    core, data = emulator._core, GameData()
    core.configure_data(data)
    data.update_ram()
    blocks = data.memory.blocks
    assert emulator.ram.tobytes() == blocks[0] + blocks[1024]
    # stable-retro leaves the low bits of a colour 0, where ours fills them.
    assert np.array_equal(emulator.rgb() & np.array([0xF8, 0xFC, 0xF8], np.uint8), core.get_screen())
    assert emulator.pixels.shape == (224, 240)
    assert not emulator.pixels.flags.writeable
    assert len(np.unique(emulator.pixels)) > 8
    emulator.ram[memory_layout.LIVES] = 7
    assert emulator.save() != emulator.power_on
    emulator.run()
    data.update_ram()
    assert data.memory.blocks[1024][memory_layout.LIVES - 1024] == 7


def test_restored_state_continues_identically(emulator: Emulator) -> None:
    state = start_level(emulator, 1, 2, runner=True)
    ends = []
    for _ in range(2):
        emulator.load(state)
        for buttons in (("RIGHT",), ("RIGHT", "A", "B"), ("RIGHT", "B"), ("LEFT", "A")):
            emulator.press(mask_of(*buttons))
            emulator.run(30)
        ends.append((emulator.ram.copy(), emulator.pixels.copy()))
    assert np.array_equal(ends[0][0], ends[1][0])
    assert np.array_equal(ends[0][1], ends[1][1])
    with pytest.raises(HotloopError, match="does not take this state of 5 bytes"):
        emulator.load(b"12345")


def test_second_emulator_is_a_clear_error(emulator: Emulator) -> None:
    with pytest.raises(
        EmulatorBusy, match=r"global variables: close the other environment first, or run this one in a"
    ):
        Emulator(RUNNER)
    emulator.run()  # The first one still works.
    emulator.close()
    emulator.close()
    again = Emulator(RUNNER)
    again.run(5)
    again.close()


def test_unreferenced_emulator_is_released() -> None:
    """Runs in its own process, because a mistake would crash it."""
    program = (
        "from hotloop.training.envs.nes.emulator import Emulator\n"
        "from hotloop.training.envs.nes.rom import RUNNER\n"
        "for _ in range(3):\n"
        "    console = Emulator(RUNNER); console.run(3); shown = console.pixels.sum(); del console\n"
        "print('well')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "well\n"
