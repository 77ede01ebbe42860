MINE = "own envs"
