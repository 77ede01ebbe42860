"""The recorder, inside the training process: hooks, stack sampler, call tree, writer."""
