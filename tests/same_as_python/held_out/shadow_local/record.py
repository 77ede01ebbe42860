MINE = "own record"
