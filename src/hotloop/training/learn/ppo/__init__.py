"""PPO on flat observations: one learner, two kernels that give the same numbers."""
