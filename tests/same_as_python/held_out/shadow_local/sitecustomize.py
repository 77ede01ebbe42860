MINE = "own sitecustomize"
