"""Rules about stepping environments."""
