"""Hooks for environments: Gymnasium, gym, Stable-Baselines3's vector environments, and hand-written ones.

An environment is a subclass of a known base, or a class of the user's own that looks like one: it has `reset` and
`step(action)`. Steps may nest (wrappers, vectors of environments): the outermost counts as the agent's step, the
innermost as frames.
"""

from __future__ import annotations

import functools
import inspect
import re
import types
from collections.abc import Awaitable, Hashable
from threading import get_ident
from typing import TYPE_CHECKING, TypeAlias

from hotloop.hook_kinds import Hook
from hotloop.phases import Phase
from hotloop.profiling.recorder.hooks import wrappers
from hotloop.profiling.recorder.hooks.patching import Patches, Subject, definer, is_own, root
from hotloop.profiling.recorder.hooks.wrappers import (
    Method,
    P,
    R,
    S,
    SpansByType,
    dressed,
    hide_frame,
    mark,
    skipped_by_warnings,
)
from hotloop.spans.hot_path import Step, close_step, is_leaf, note, open_step
from hotloop.spans.registry import counter_code, recording

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from hotloop.profiling.recorder.hooks.state import HookState

_BASES = frozenset({"Env", "VectorEnv", "Wrapper", "VecEnv", "AECEnv", "ParallelEnv", "Environment", "EnvPoolMixin"})
_PACKAGES = frozenset({"gymnasium", "gym", "stable_baselines3", "pettingzoo", "dm_env", "envpool"})
_NOT_ENVS = frozenset({"act", "learn", "select_action", "choose_action", "get_action", "state_dict", "zero_grad"})
"""Methods of agents, optimisers and schedulers, some of which have `step` and `reset` too."""
_EPISODES, _VECTOR_STEPS, _ENV_STEPS, _FRAMES = map(counter_code, ("episodes", "vector_steps", "env_steps", "frames"))
_RENDER = re.compile(r"render|draw(?!n|_(cards?|hand|tiles?|samples?|random|number))")
_OBSERVE = re.compile(
    r"_{0,2}((get|build|make|compute|encode|extract|create|stack)_)?(all_)?"
    r"(obs|observe|observations?|features?|frames?_stack|stack(ed)?_frames?)(?!\w*(space|spec|shape|size|dim|mode))(_\w+)?"
)


def on_class(cls: type, patches: Patches, state: HookState) -> None:
    """Time the methods of an environment class."""
    own = is_own(cls)
    known = any(base.__name__ in _BASES and root(base) in _PACKAGES for base in cls.__mro__)
    if not known and not (_has_shape(cls) and own):
        return
    for name in ("step", "step_wait"):
        _patch(cls, name, Phase.ENV, patches, state)
    for name in ("reset", "step_async"):
        _patch(cls, name, Phase.ENV, patches)
    for name in ("render", "_render"):
        _patch(cls, name, Phase.RENDER, patches)
    for name in list(vars(cls)):
        if own and _RENDER.search(name):
            patches.time_method(cls, name, Phase.RENDER)
        elif (own and _OBSERVE.fullmatch(name)) or (known and name == "observation"):
            patches.time_method(cls, name, Phase.OBSERVE)


def _patch(cls: type, name: str, phase: Phase, patches: Patches, state: HookState | None = None) -> None:
    """Time a method where it is defined; given a state, as a step of the environment."""
    owner = definer(cls, name)
    if owner is None or root(owner) in ("builtins", "torch"):
        return
    fn = vars(owner)[name]
    if getattr(fn, "__isabstractmethod__", False):
        return
    if state is None:
        patches.time_method(owner, name, phase)
    elif inspect.iscoroutinefunction(fn):
        patches.time_method(owner, name, phase, functools.partial(awaited_stepping, state=state))
    else:
        patches.time_method(owner, name, phase, functools.partial(stepping, state=state))


def _has_shape(cls: type) -> bool:
    owner = definer(cls, "step")
    if owner is None or definer(cls, "reset") is None or vars(cls).get("_is_protocol", False):
        return False
    if any(definer(cls, name) for name in _NOT_ENVS):
        return False
    step = inspect.unwrap(vars(owner)["step"]) if callable(vars(owner)["step"]) else None
    if not isinstance(step, types.FunctionType):
        return False
    code = step.__code__
    required = code.co_argcount - 1 - len(step.__defaults__ or ())
    takes_action = code.co_argcount > 1 or bool(code.co_flags & inspect.CO_VARARGS)
    return takes_action and required <= 2


def stepping(fn: Method[S, P, R], spans: SpansByType, state: HookState) -> Method[S, P, R]:
    """Time an environment's step; count steps, frames and episodes from its result.

    In C if possible: a step of Gymnasium passes through four or five of these.
    """
    python = functools.partial(stepping_in_python, fn, spans, state)
    if Step is None or state.calls_are_seen:
        return python()
    spans.hook = Hook.QUICK_STEP
    step = Step(fn, spans, functools.partial(tally, state), (_EPISODES, _VECTOR_STEPS, _ENV_STEPS, _FRAMES))
    return dressed(step, fn, python, spans)


@skipped_by_warnings
def stepping_in_python(fn: Method[S, P, R], spans: SpansByType, state: HookState) -> Method[S, P, R]:
    """Do in Python what `stepping` does."""
    spans.hook = Hook.STEP

    @functools.wraps(fn)
    def step(self: S, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            if wrappers.is_compiling() or (each := spans[type(self)]) is None:
                return fn(self, *args, **kwargs)
            depth = open_step()
            try:
                with each:
                    out = fn(self, *args, **kwargs)
                    if (leaf := is_leaf()) or not depth:
                        tally(state, self, out, leaf, not depth)
                    return out
            finally:
                close_step()
        except BaseException as error:
            hide_frame(error)
            raise

    return mark(step, spans)


@skipped_by_warnings
def awaited_stepping(
    fn: Method[S, P, Awaitable[R]], spans: SpansByType, state: HookState
) -> Method[S, P, Awaitable[R]]:
    """Count a step that is awaited. It is not timed: other tasks run in between."""

    @functools.wraps(fn)
    async def step(self: S, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            out = await fn(self, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise
        tally(state, self, out, True, True)
        return out

    return mark(step, spans)


def tally(state: HookState, env: object, out: object, leaf: bool, outermost: bool) -> None:
    """Count a step, from its result."""
    try:
        if not recording():
            return
        n = 1
        if isinstance(out, tuple) and len(out) >= 3:
            reward = out[1]
            if not isinstance(reward, (float, int)):
                n = _width(env, reward)
            if outermost and (ended := _ended(out, state.quiet)):
                note(_EPISODES, ended)
        if outermost:
            note(_VECTOR_STEPS, 1)
            note(_ENV_STEPS, n)
        if leaf:
            note(_FRAMES, n)
    except Exception as error:
        if not state.failures.report("count a step", error):
            raise


def _width(env: object, reward: object) -> int:
    """Return how many environments a reward is for."""
    shape = getattr(reward, "shape", None)
    if shape is None:
        return len(reward) if isinstance(reward, (list, tuple)) and reward else 1
    if not shape:
        return 1
    # The reward of a single environment may be a vector too, with several objectives.
    if _is_single(type(env)) and not hasattr(env, "num_envs"):
        return 1
    return int(shape[0])


@functools.cache
def _is_single(cls: type) -> bool:
    names = {base.__name__ for base in cls.__mro__ if root(base) in _PACKAGES}
    return bool(names & {"Env", "Wrapper"}) and not names & {"VectorEnv", "VecEnv"}


Flags: TypeAlias = "bool | np.bool_ | NDArray | torch.Tensor | dict[Hashable, bool]"
"""Whether episodes ended: of one environment, of a vector of them, or by agent."""


def _ended(fields: tuple, quiet: set[int]) -> int:
    """Return how many episodes a step ended: (…, terminated, truncated, info), or (…, done, info)."""
    terminated: Flags = fields[2]
    truncated: Flags = fields[3] if len(fields) >= 5 else False
    if isinstance(terminated, (bool, int)):
        return int(bool(terminated) or bool(truncated))
    if isinstance(terminated, dict):
        cut = truncated if isinstance(truncated, dict) else dict.fromkeys(terminated, bool(truncated))
        return int(bool(terminated) and all(ended or cut.get(agent) for agent, ended in terminated.items()))
    if isinstance(terminated, (list, tuple)):
        cuts = truncated if isinstance(truncated, (list, tuple)) else [truncated] * len(terminated)
        return sum(bool(end) or bool(cut) for end, cut in zip(terminated, cuts, strict=False))
    return _ended_by_array(terminated, truncated, quiet)


def _ended_by_array(terminated: Flags, truncated: Flags, quiet: set[int]) -> int:
    import numpy as np  # The script has imported it: its environment returned an array or a tensor.

    ends, cuts = (_host_array(np, each, quiet) for each in (terminated, truncated))
    if ends is None or cuts is None:
        return 0
    if ends.dtype == cuts.dtype == np.bool_ and ends.shape == cuts.shape:  # the usual form, and the quickest
        return int(np.count_nonzero(ends | cuts))
    return int(np.count_nonzero(np.logical_or(ends, cuts) if ends.ndim and cuts.ndim else ends))


def _host_array(np: types.ModuleType, flags: Flags, quiet: set[int]) -> NDArray | None:
    """Return flags as an array, or None where reading them would make the host wait for a device."""
    if isinstance(flags, (np.ndarray, list, tuple, bool, np.bool_, int, float)):
        return np.asarray(flags)
    if isinstance(flags, dict) or not getattr(flags, "is_cpu", False):
        return None
    tensor: torch.Tensor = flags  # pyright: ignore[reportAssignmentType]
    thread = get_ident()
    quiet.add(thread)
    try:
        return np.asarray(tensor.detach())
    finally:
        quiet.discard(thread)


SUBJECT = Subject(on_class=on_class)
