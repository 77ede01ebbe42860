"""What surrounds a training loop: options, progress, curves, checkpoints, signals. Nothing here changes training."""
