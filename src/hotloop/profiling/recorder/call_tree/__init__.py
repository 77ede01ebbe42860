"""Call trees: from each thread's events to call paths, numbers of calls and times."""
