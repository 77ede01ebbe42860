MINE = "own tempfile"
