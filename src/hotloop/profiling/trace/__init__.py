"""The run directory on disk, and the frozen `Trace` read from it. No torch."""
