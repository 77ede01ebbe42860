MINE = "own usercustomize"
