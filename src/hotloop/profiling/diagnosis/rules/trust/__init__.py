"""Rules about results and timings that cannot be trusted."""
