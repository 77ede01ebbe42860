MINE = "own inspect"
