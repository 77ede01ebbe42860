MINE = "toy gym"
