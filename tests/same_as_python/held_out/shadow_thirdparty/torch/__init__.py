MINE = "toy torch"
