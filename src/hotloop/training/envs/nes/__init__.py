"""Environments on an NES emulator, which drives stable-retro's core directly.

`config` holds the options. `rom` finds and verifies the cartridge, `emulator` runs it, `preprocess` turns its picture
into an observation, `memory_layout` reads the game's state from its memory, `start_states` makes the states at which
episodes start. `mario` is the environment for Super Mario Bros. and for our own free game `runner`. Importing this
package needs neither stable-retro nor numba; making an environment does.
"""

from hotloop.training.envs.nes.config import MarioConfig, MarioRewards
from hotloop.training.envs.nes.mario import MarioEnv

__all__ = ["MarioConfig", "MarioEnv", "MarioRewards"]
