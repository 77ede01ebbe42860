MINE = "own selectors"
