MINE = "own csv"
