"""An NES emulator: drives stable-retro's emulator class directly, without its environment.

Memory and picture are read in place through the standard libretro functions, without copying the memory or converting
pictures that are not used. The core draws every frame; this cannot be switched off. It keeps the console in global
variables, so a process can have only one.
"""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from hotloop.errors import DependencyMissing, HotloopError

RAM_BYTES = 2048
SYSTEM_RAM = 2
"""libretro's id of the console's work memory."""

BUTTONS = {"B": 0, "SELECT": 2, "START": 3, "UP": 4, "DOWN": 5, "LEFT": 6, "RIGHT": 7, "A": 8}
"""Indices into the button mask of stable-retro's NES core."""

MASK_BUTTONS = 9
VideoRefresh = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint, ctypes.c_size_t)


class EmulatorBusy(HotloopError):
    """This process already has an emulator."""


def mask_of(*buttons: str) -> NDArray[np.uint8]:
    """Return the mask, uint8 [9], of buttons held together."""
    mask = np.zeros(MASK_BUTTONS, np.uint8)
    for name in buttons:
        mask[BUTTONS[name]] = 1
    return mask


class Emulator:
    """A console with a cartridge in it, a file in iNES format.

    Attributes:
        ram: View of the console's memory, uint8 [2048]. Writing to it changes the game.
    """

    def __init__(self, rom: Path) -> None:
        retro = _load_retro()
        # An unused emulator in a reference cycle keeps the core until it is garbage collected.
        gc.collect()
        try:
            self._core = retro.RetroEmulator(str(rom))
        except RuntimeError as error:
            if "multiple emulator instances" not in str(error):
                raise HotloopError(f"rom {str(rom)!r} was not accepted by the emulator: {error}") from None
            raise EmulatorBusy(
                "there is an NES emulator in this process already, and its core keeps the console in global variables: "
                "close the other environment first, or run this one in a process of its own"
            ) from None
        self._library = ctypes.CDLL(retro.get_core_path("Nes"))
        self._frame: tuple[int, int, int, int] = (0, 0, 0, 0)
        self._pixels: NDArray[np.uint16] = np.empty((0, 0), np.uint16)
        # The attribute keeps the callback alive while the core can call it.
        self._on_frame = VideoRefresh(self._note_frame)
        self._library.retro_set_video_refresh(self._on_frame)
        self._step = self._core.step
        self._core.set_button_mask(mask_of(), 0)
        self._step()
        self.ram = self._find_ram()
        self.power_on = self.save()

    def press(self, mask: NDArray[np.uint8]) -> None:
        """Hold exactly these buttons, uint8 [9], from the next frame on."""
        self._core.set_button_mask(mask, 0)

    def run(self, frames: int = 1) -> None:
        """Run the console for some frames."""
        step = self._step
        for _ in range(frames):
            step()

    @property
    def pixels(self) -> NDArray[np.uint16]:
        """View of the picture, uint16 [224, 240] in RGB565; the next frame overwrites it."""
        return self._pixels

    def rgb(self) -> NDArray[np.uint8]:
        """Return a copy of the picture, uint8 [224, 240, 3]."""
        bits = self._pixels.astype(np.uint16)
        red, green, blue = bits >> 11, (bits >> 5) & 63, bits & 31
        return np.stack([red << 3 | red >> 2, green << 2 | green >> 4, blue << 3 | blue >> 2], -1).astype(np.uint8)

    def save(self) -> bytes:
        """Return the state of the console, about 13 kB."""
        self._check_open()
        return self._core.get_state()

    def load(self, state: bytes) -> None:
        """Restore a state. The picture does not change until the next frame."""
        self._check_open()
        if not self._core.set_state(state):
            raise HotloopError(
                f"the emulator does not take this state of {len(state)} bytes: is it of another cartridge?"
            )

    def close(self) -> None:
        """Release the core, its memory and its picture, so that another emulator can be made."""
        self.ram = np.zeros(RAM_BYTES, np.uint8)
        self._pixels = np.empty((0, 0), np.uint16)
        for name in ("_step", "_core", "_on_frame"):
            self.__dict__.pop(name, None)

    def __del__(self) -> None:
        self.close()

    def _check_open(self) -> None:
        if "_core" not in self.__dict__:
            raise HotloopError("the emulator was closed: make a new environment")

    def _note_frame(self, data: int | None, width: int, height: int, pitch: int) -> None:
        """Callback of the core: record the address of the picture. It rarely changes, so most calls do nothing."""
        if data and (data, width, height, pitch) != self._frame:
            self._frame = (data, width, height, pitch)
            memory = (ctypes.c_uint16 * (height * pitch // 2)).from_address(data)
            self._pixels = np.frombuffer(memoryview(memory), np.uint16).reshape(height, pitch // 2)[:, :width]
            self._pixels.flags.writeable = False

    def _find_ram(self) -> NDArray[np.uint8]:
        self._library.retro_get_memory_data.restype = ctypes.c_void_p
        self._library.retro_get_memory_size.restype = ctypes.c_size_t
        address = self._library.retro_get_memory_data(SYSTEM_RAM)
        size = self._library.retro_get_memory_size(SYSTEM_RAM)
        if not address or size != RAM_BYTES or not self._pixels.size:
            raise HotloopError(
                f"the NES core shows {size} bytes of memory and a picture of {self._pixels.shape}: "
                "this needs a core like that of stable-retro 1.0.1"
            )
        return np.frombuffer(memoryview((ctypes.c_uint8 * size).from_address(address)), np.uint8)


def _load_retro() -> ModuleType:
    try:
        import stable_retro
    except ImportError as missing:
        raise DependencyMissing(
            f'the NES environments need stable-retro, which is not installed ({missing}): pip install "hotloop[nes]"'
        ) from None
    return stable_retro
