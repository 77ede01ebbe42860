MINE = "own sqlite3"
