MINE = "own signal"
