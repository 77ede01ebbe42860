"""From the tables of a run to a `Trace`: phases, overhead corrections, windows."""
