"""The training pipelines: one file each, in which a training step can be read from top to bottom."""
