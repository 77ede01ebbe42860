"""Reports: one view model of a run (`view`) and its writers: terminal, text, JSON, notebook, charts, exports.

Nothing is imported here, so that a command loads only the writer it needs: rich and matplotlib are slow to import.
"""
