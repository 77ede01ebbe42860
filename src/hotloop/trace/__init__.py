"""SEE: what a run leaves on disk. Frozen data, versioned files, corrections. No torch."""
