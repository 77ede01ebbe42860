"""Games on a real NES emulator: stable-retro's core driven directly, and environments on top of it.

`rom` says which cartridge is played and checks it, `emulator` runs it, `frames` makes what the agent sees of its
picture, `layout` reads the state of a game out of its memory, `starts` knows where episodes begin, `mario` is the
environment for Super Mario Bros. and for our own free game `runner`. Importing this needs neither stable-retro nor
numba; making an environment does.
"""

from hotloop.training.envs.nes.config import MarioConfig, MarioRewards
from hotloop.training.envs.nes.mario import MarioEnv

__all__ = ["MarioConfig", "MarioEnv", "MarioRewards"]
