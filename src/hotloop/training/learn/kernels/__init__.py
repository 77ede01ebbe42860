"""Numba kernels that several learners share, each with a readable reference implementation."""
