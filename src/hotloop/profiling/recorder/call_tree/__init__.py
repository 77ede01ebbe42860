"""Call trees: the events of each thread, folded into who called whom, how often and for how long."""
