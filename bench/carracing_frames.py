"""How similar our frames are to the official ones: 1,000 frames of driven episodes, drawn by both from the same states.

Mean absolute difference of the pixels (of 255), and the structural similarity of Wang et al. 2004 on the grey picture
(Gaussian window of 11 pixels, sigma 1.5). RGB at 96×96 is the observation as the official environment has it. Grey at
64×64 is what an agent of the preset `fast` sees: we draw it at that size, the official picture is shrunk once more.
`--picture F.png` writes some frames side by side.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.envs.box2d.car_racing import CarRacing
from matplotlib import image
from scipy.ndimage import gaussian_filter

from hotloop.training.envs.carracing import CarRacingConfig
from hotloop.training.envs.carracing.centre_line_driver import drive
from hotloop.training.envs.carracing.game import Game
from hotloop.training.envs.carracing.observation import Observer
from hotloop.training.tasks.carracing import as_seen

FRAMES, EPISODES, LENGTH = 1000, 5, 700
"""Total frames compared; episodes; frames driven in each."""

PAIRS = ((96, "rgb", 1), (96, "rgb", 2), (96, "rgb", 4), (64, "grey", 2))
"""Size, colour and supersampling of what is compared."""
PLAIN, FINE = PAIRS[:2]
Pair = tuple[int, str, int]
GREY = np.array([0.299, 0.587, 0.114])
SIGMA, REACH = 1.5, 3.5
STEADY = (0.01 * 255) ** 2, (0.03 * 255) ** 2
SHOWN = ((0, 4), (0, 25), (0, 130), (1, 200), (2, 330), (3, 600), (4, 90), (4, 660))
"""Episode and frame of each row of the picture."""

SHOWN_TIMES, SHOWN_DIFFERENCE = 2, 4


class Official(Game):
    """The official game with its own rendering in each step, from which we can also draw."""

    def _render(self, mode: str) -> Any:
        super()._render(mode)
        return CarRacing._render(self, mode)


def similarity(left: np.ndarray, right: np.ndarray) -> float:
    """Return the mean structural similarity of two grey pictures, float [H, W]."""

    def blur(picture: np.ndarray) -> np.ndarray:
        return gaussian_filter(picture, SIGMA, truncate=REACH)

    mean_l, mean_r = blur(left), blur(right)
    var_l, var_r = blur(left * left) - mean_l**2, blur(right * right) - mean_r**2
    both = blur(left * right) - mean_l * mean_r
    above = (2 * mean_l * mean_r + STEADY[0]) * (2 * both + STEADY[1])
    return float((above / ((mean_l**2 + mean_r**2 + STEADY[0]) * (var_l + var_r + STEADY[1]))).mean())


def likeness(official: np.ndarray, ours: np.ndarray) -> tuple[float, float]:
    """Return mean absolute difference and structural similarity of two pictures, uint8 [H, W] or [H, W, 3]."""
    difference = np.abs(official.astype(float) - ours).mean()
    left, right = (each @ GREY if each.ndim == 3 else each.astype(float) for each in (official, ours))
    return float(difference), similarity(left, right)


def collect() -> tuple[dict[Pair, list[tuple[float, float]]], list[np.ndarray]]:
    """Drive; return the difference and similarity of each frame by pair, and the rows of the image."""
    found: dict[Pair, list[tuple[float, float]]] = {pair: [] for pair in PAIRS}
    rows: list[np.ndarray] = []
    compared = {LENGTH * k * EPISODES // FRAMES for k in range(FRAMES // EPISODES)}
    for episode in range(EPISODES):
        game = Official()
        game.reset(seed=100 + episode)
        driver = Observer(game, CarRacingConfig(state="vector"))
        observers = {pair: Observer(game, CarRacingConfig("visual", *pair)) for pair in PAIRS}
        for observer in (driver, *observers.values()):
            observer.start_episode()
        for frame in range(LENGTH):
            official, _, over, _, _ = game.step(drive(driver.observe()))
            if frame in compared or (episode, frame) in SHOWN:
                ours = {pair: observer.observe() for pair, observer in observers.items()}
                if (episode, frame) in SHOWN:
                    rows.append(side_by_side(official, ours[PLAIN], ours[FINE]))
                if frame in compared:
                    for (size, colour, fine), picture in ours.items():
                        theirs = official if colour == "rgb" else as_seen(official, size)
                        found[size, colour, fine].append(likeness(theirs, picture))
            if over:
                raise SystemExit(f"episode {episode} ended after {frame} frames: choose a longer track")
    return found, rows


def side_by_side(official: np.ndarray, plain: np.ndarray, fine: np.ndarray) -> np.ndarray:
    """Return official, ours at 1x, ours at 2x, and four times the difference of the last, uint8 [96, 4·98, 3]."""
    difference = np.clip(SHOWN_DIFFERENCE * np.abs(official.astype(int) - fine), 0, 255).astype(np.uint8)
    return np.concatenate(
        [np.pad(each, ((1, 1), (1, 1), (0, 0))) for each in (official, plain, fine, difference)], axis=1
    )


def main() -> None:
    """Measure, print, and optionally write the image."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--picture", type=Path)
    arguments = parser.parse_args()
    found, rows = collect()
    results = []
    for (size, colour, fine), frames in found.items():
        differences, similarities = np.array(frames).T
        results.append(
            {
                "size": size, "colour": colour, "supersample": fine, "frames": len(frames),
                "mean_absolute_difference": round(differences.mean(), 3),
                "worst_difference": round(differences.max(), 3),
                "ssim": round(similarities.mean(), 4), "worst_ssim": round(similarities.min(), 4),
            }
        )  # fmt: skip
    if arguments.picture:
        half = len(rows) // 2
        page = np.concatenate([np.concatenate(rows[:half]), np.concatenate(rows[half:])], axis=1)
        image.imsave(arguments.picture, np.kron(page, np.ones((SHOWN_TIMES, SHOWN_TIMES, 1), np.uint8)))
    for each in results:
        print(json.dumps(each) if arguments.json else "  ".join(f"{name} {value}" for name, value in each.items()))


if __name__ == "__main__":
    main()
