MINE = "own platform"
