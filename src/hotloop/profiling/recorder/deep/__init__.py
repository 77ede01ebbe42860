"""Deep samples: every function call, torch operator or layer, over a few iterations."""
