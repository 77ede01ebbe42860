MINE = "own report"
