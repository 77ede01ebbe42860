MINE = "own queue"
