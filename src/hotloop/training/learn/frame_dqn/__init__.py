"""DQN on stacked frames: learner, kernels, and the policy that collector processes run."""
