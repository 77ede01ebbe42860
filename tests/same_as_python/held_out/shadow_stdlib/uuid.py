MINE = "own uuid"
