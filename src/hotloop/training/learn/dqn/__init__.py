"""DQN on flat observations: one learner, several kernels that compute the same numbers."""
