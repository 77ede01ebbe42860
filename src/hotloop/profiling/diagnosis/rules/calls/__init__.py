"""Rules about what is called, and with what."""
