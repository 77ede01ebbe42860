"""Soft actor-critic: one learner, two kernels that compute the same numbers."""
