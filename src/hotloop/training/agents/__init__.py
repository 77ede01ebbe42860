"""Trained agents: load them from checkpoints, export, evaluate and play them."""
