MINE = "own utils"
