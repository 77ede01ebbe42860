MINE = "toy psutil"
