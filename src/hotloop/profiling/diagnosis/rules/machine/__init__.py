"""Rules about the machine and the loop as a whole."""
