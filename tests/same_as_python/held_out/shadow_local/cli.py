MINE = "own cli"
