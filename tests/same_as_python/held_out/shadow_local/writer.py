MINE = "own writer"
