"""Hooks for what stops the whole loop: writing replay buffers and arrays to disk, and garbage collection."""

from __future__ import annotations

from hotloop.phases import Phase
from hotloop.profiling.recorder.hooks.patching import Subject, Target, targets

SUBJECT = Subject(
    on_import={
        "pickle": targets(Target("dump", Phase.CHECKPOINT, "pickle.dump")),
        "numpy": targets(
            *(Target(name, Phase.CHECKPOINT, f"numpy.{name}") for name in ("save", "savez", "savez_compressed"))
        ),
        "joblib": targets(Target("dump", Phase.CHECKPOINT, "joblib.dump")),
        "gc": targets(Target("collect", Phase.OTHER, "gc.collect")),
    },
)
