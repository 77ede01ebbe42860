"""Timings that a script prints about itself, collected so that they can be checked."""
