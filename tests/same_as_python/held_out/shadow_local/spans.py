MINE = "own spans"
