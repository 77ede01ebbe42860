MINE = "own hooks"
