"""Reads run directories that anyone may have written: types, ranges and sizes are checked here, once."""
