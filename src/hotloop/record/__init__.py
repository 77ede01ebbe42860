"""SEE: the recorder. Span buffers, stack and memory sampler, counters, zero-code hooks."""
