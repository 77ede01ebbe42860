"""DQN on stacked frames: learner, kernels, and the policy that workers run."""
