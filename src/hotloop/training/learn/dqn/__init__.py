"""DQN on flat observations: one learner, several kernels that give the same numbers."""
