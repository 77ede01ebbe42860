# Checks: packages with relative imports, __init__ side effects, submodule attributes, __all__, circular imports, namespace package.
import app
from app.core import run
from app import *
import ns.part
print(run(), exported, app.__path__[0].endswith("app"), ns.__file__ if hasattr(ns, "__file__") else None, ns.part.V)
import app.circ_a
print(app.circ_a.A, app.circ_b.B)
