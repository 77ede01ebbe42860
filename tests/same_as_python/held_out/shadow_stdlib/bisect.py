MINE = "own bisect"
