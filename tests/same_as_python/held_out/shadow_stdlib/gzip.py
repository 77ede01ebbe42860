MINE = "own gzip"
