MINE = "own statistics"
