"""Rules about moving, storing and converting experience."""
