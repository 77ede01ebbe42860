MINE = "own json"
