MINE = "own profile"
