# Checks: an error raised while importing a sibling: frozen importlib frames are trimmed as in Python.
import pkg.deep
