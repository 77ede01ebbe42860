MINE = "own agent"
