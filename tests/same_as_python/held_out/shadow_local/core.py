MINE = "own core"
