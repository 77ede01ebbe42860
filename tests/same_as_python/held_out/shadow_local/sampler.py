MINE = "own sampler"
