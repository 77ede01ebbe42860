MINE = "toy rich"
