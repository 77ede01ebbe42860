MINE = "own tracer"
