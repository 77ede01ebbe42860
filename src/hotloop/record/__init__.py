"""SEE: the recorder. Span buffers, stack and memory sampler, counters, zero-code hooks.

`hotloop.record` is this package and also the function: importing a module of the package gives the name to the
package, so calling the package records too.
"""

from __future__ import annotations

import sys
import types
from typing import Any


class _Callable(types.ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from hotloop.record.session import record

        return record(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
