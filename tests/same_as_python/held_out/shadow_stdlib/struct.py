MINE = "own struct"
