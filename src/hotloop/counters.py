"""What a training loop counts. Pipelines, recordings and reports share this one definition, so that they agree.

`env_steps` are transitions over all environments, `frames` what the game advanced, `updates` optimiser steps,
`episodes` those that ended. The four are never mixed.
"""

from __future__ import annotations

COUNTERS = ("env_steps", "frames", "updates", "episodes")


def steps_per_episode(env_steps: int, episodes: int) -> float | None:
    """Return the environment steps made for each episode that ended; None until one has.

    Steps of episodes that are still going on are included, so that `episodes × steps_per_episode = env_steps`.
    """
    return env_steps / episodes if episodes else None
