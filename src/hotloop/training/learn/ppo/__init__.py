"""PPO on flat observations: one learner, two kernels that compute the same numbers."""
