"""Why is this training slow? Record a run, read it back, find the cause, report it."""
