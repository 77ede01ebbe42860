MINE = "own version"
