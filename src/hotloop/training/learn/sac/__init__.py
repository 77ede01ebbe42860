"""Soft actor-critic: one learner, two kernels that give the same numbers."""
