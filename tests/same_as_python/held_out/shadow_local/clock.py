MINE = "own clock"
