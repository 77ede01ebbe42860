MINE = "own logging"
