"""Prints where every tenth update of SAC spends its time: phases, layers, and the FLOP/s that each implies.

A GPU is synchronised before each reading of the clock. The whole update is timed separately, including its sampling.
Time of a phase outside its parts is shown as its rest, and time outside all phases as the time between them. FLOP/s
above what this machine reaches in a matrix product mean that a time is wrong; they are marked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import pairwise

import torch

from hotloop.clock import now_ns
from hotloop.training.learn.sac.learner import SAC, as_span
from hotloop.training.learn.sac.networks import TWINS, SACShape
from hotloop.training.learn.sac.state import PHASES

EVERY = 10
SAMPLE, BETWEEN = "sample", "between"
SHOWN = (SAMPLE, *PHASES)
"""The phases of the table, in their order."""
PEAK_SIDE, PEAK_TRIES = 1024, 5
SURELY = 1.2
"""More than this times the measured peak is impossible."""
Key = tuple[str, str]
"""A phase and a part of it; the part "" is the phase itself."""


class UpdateReport:
    """Times updates and prints every tenth: put `with report.whole():` around sampling and update.

    In it, `with report("sample"):` goes around the sampling, and `SAC.update` gets the report as its `timed`.

    Attributes:
        whole_ns: Time of the last update, its sampling included.
        ns: Time of each of its phases and parts.
    """

    def __init__(self, learner: SAC, say: Callable[[str], None]) -> None:
        self.whole_ns = 0
        self.ns: dict[Key, int] = {}
        self._say = say
        self._device = torch.device(learner.device)
        self._flops = flops_of(learner)
        self._peak = peak_flops_per_s(self._device)
        self._updates = 0
        self._phase = ""

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Time one update, including the sampling of its batch. Print every tenth."""
        self.ns = {}
        begin = self._now()
        yield
        self.whole_ns = self._now() - begin
        self._updates += 1
        if self._updates % EVERY == 0:
            self._say(table(self._updates, self.whole_ns, self.ns, self._flops, self._peak))

    @contextmanager
    def __call__(self, name: str, /) -> Iterator[None]:
        """Time a phase, or a part of the current one. It is also a span of the recording."""
        is_phase = name in SHOWN
        if is_phase:
            self._phase = name
        key = (self._phase, "" if is_phase else name)
        begin = self._now()
        # Sampling is a span of the training loop already.
        with nullcontext() if name == SAMPLE else as_span(name):
            yield
        self.ns[key] = self.ns.get(key, 0) + self._now() - begin

    def _now(self) -> int:
        """Return the time after all work is done. A GPU is still busy when a call returns."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        elif self._device.type == "mps":
            torch.mps.synchronize()
        return now_ns()


def table(update: int, whole: int, ns: dict[Key, int], flops: dict[Key, float], peak: float) -> str:
    """Return the phases of one update as text: its time with sampling, and of each phase and part the time, ns.

    FLOP/s are shown where the operations are known; `peak` is what this machine can reach.
    """
    lines = [
        f"update {update}: {whole / 1e6:.2f} ms with its sampling; "
        f"matrix products run at up to {peak / 1e9:.0f} GFLOP/s here"
    ]
    for phase in SHOWN:
        lines.append(_line(phase, ns.get((phase, ""), 0), flops.get((phase, "")), whole, peak))
        parts = {part: time for (of, part), time in ns.items() if of == phase and part}
        rest = ns.get((phase, ""), 0) - sum(parts.values())
        for part, time in (parts | {"rest": rest} if parts else {}).items():
            lines.append(_line(f"  {part}", time, flops.get((phase, part)), whole, peak))
    between = whole - sum(time for (_, part), time in ns.items() if not part)
    return "\n".join([*lines, _line(BETWEEN, between, None, whole, peak)])


def _line(name: str, ns: int, flops: float | None, whole: int, peak: float) -> str:
    text = f"  {name:<14}{ns / 1e6:>9.2f} ms {ns / max(whole, 1):>6.1%}"
    if not flops:
        return text
    per_s = flops * 1e9 / max(ns, 1)
    note = "  impossible: this time is wrong" if per_s > SURELY * peak else ""
    return f"{text} {flops / 1e9:>7.2f} GFLOP {per_s / 1e9:>6.0f} GFLOP/s{note}"


def peak_flops_per_s(device: torch.device) -> float:
    """Measure the peak FLOP/s of this machine with a matrix product."""
    a = torch.rand(PEAK_SIDE, PEAK_SIDE, device=device)
    best = float("inf")
    for _ in range(PEAK_TRIES):
        begin = now_ns()
        (a @ a)[0, 0].item()  # waits for the result
        best = min(best, (now_ns() - begin) / 1e9)
    return 2 * PEAK_SIDE**3 / best


def flops_of(learner: SAC) -> dict[Key, float]:
    """Return the operations of an update by phase and part: two for each multiplication in a layer.

    A backward pass takes twice as many, for weights and input; the first convolution, whose input is frames, has no
    gradient of its input. The gradient of the policy passes once through the critics to the action.
    """
    config = learner.config
    shape, lean = config.shape, learner.kernel == "lean"
    convs, (policy, critic) = conv_macs(shape), body_macs(shape)
    own, critics = (0, 1) if shape.shared else (1, TWINS)
    looked = {
        "target": 1 if shape.shared else 1 + TWINS,
        "critics": critics,
        "actor": 0 if shape.shared else own + TWINS,
    }
    eye, first = sum(convs), convs[0] if convs else 0
    # The plain kernel also computes the gradients of the critics in the actor's loss, and discards them.
    wasted = 0 if lean else TWINS * critic + (0 if shape.shared else TWINS * (2 * eye - first))
    macs: dict[Key, float] = {}
    for phase, eyes in looked.items():
        for k, each in enumerate(convs):
            macs[phase, f"conv{k + 1}"] = eyes * each
        macs[phase, "fc"] = TWINS * critic + (0 if phase == "critics" else policy)
    macs["critics", "backward"] = critics * (2 * eye - first) + 2 * TWINS * critic
    macs["actor", "backward"] = own * (2 * eye - first) + 2 * policy + TWINS * critic + wasted
    flops = {key: 2.0 * config.batch * number for key, number in macs.items()}
    return flops | {(phase, ""): sum(n for (of, _), n in flops.items() if of == phase) for phase in looked}


def conv_macs(shape: SACShape) -> list[int]:
    """Return the multiplications of each convolution for one observation."""
    if not shape.has_frames:
        return []
    channels, sides = [shape.observation[0], *(each[0] for each in shape.convs)], shape.sides
    return [
        channels[k] * channels[k + 1] * kernel**2 * sides[k + 1] ** 2 for k, (_, kernel, _) in enumerate(shape.convs)
    ]


def body_macs(shape: SACShape) -> tuple[int, int]:
    """Return the multiplications of the layers after the convolutions, of the policy and of one critic."""

    def macs(beside: int, outputs: int) -> int:
        widths = [(shape.latent or shape.features) + beside, *shape.hidden, outputs]
        return shape.features * shape.latent + sum(a * b for a, b in pairwise(widths))

    return macs(0, 2 * shape.actions), macs(shape.actions, 1)
