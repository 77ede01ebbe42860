MINE = "own pickle"
