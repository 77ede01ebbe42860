MINE = "toy numpy"
