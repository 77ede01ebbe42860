"""Starts the recorder in the interpreter that `hotloop run` starts, just before Python runs the script.

Python imports a module of this name at the end of its own start-up. `hotloop run` puts this folder in front of
PYTHONPATH and replaces itself with `python script.py`. So the script is run by Python itself, and all that it can see
(its arguments, `__main__`, its path, how it ends) is as ever. Here every trace of the detour is removed first.
"""

import os
import sys


def _start(before: set[str]) -> bool:
    """Start the recorder; return whether another `sitecustomize` took the place of this one.

    Args:
        before: Names of the modules that Python itself imported.
    """
    import json

    here = os.path.dirname(os.path.abspath(__file__))
    settings = json.loads(os.environ.pop("HOTLOOP_START"))
    sys.path[:] = [each for each in sys.path if os.path.abspath(each) != here]
    sys.path_importer_cache.pop(here, None)
    if settings["pythonpath"] is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = settings["pythonpath"]
    replaced = _run_other_sitecustomize(before)
    package = [] if settings["package"] in sys.path else [settings["package"]]
    sys.path += package
    try:
        from hotloop.profiling.recorder.script import begin

        begin(settings, before)
    except Exception as error:
        os.write(2, f"hotloop: cannot record ({error!r}): the script runs without recording\n".encode(errors="replace"))
    finally:
        for each in package:
            sys.path.remove(each)
    return replaced


def _run_other_sitecustomize(before: set[str]) -> bool:
    """Run the `sitecustomize` that this one hides, whose imports count as Python's; return whether there is one."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return False
    sys.modules["sitecustomize"] = module = module_from_spec(spec)
    imported = set(sys.modules)
    spec.loader.exec_module(module)
    before |= set(sys.modules) - imported
    return True


if "HOTLOOP_START" in os.environ and not _start(set(sys.modules)):
    # Python takes this for "there is no sitecustomize", so that the script may have a module of that name.
    raise ImportError(name="sitecustomize")
