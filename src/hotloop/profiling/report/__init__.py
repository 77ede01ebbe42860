"""Reports: one view model of a run (`view`), and writers of it: terminal, text, JSON, PNG.

Nothing is imported here, so that a command loads only the writer it needs: rich and matplotlib
are slow to load.
"""
