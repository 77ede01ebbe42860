"""Secrets are recognised and hidden before anything from the user's program is written to a file."""
