MINE = "own recorder"
