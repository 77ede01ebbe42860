MINE = "own store"
