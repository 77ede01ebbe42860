MINE = "own socket"
