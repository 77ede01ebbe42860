MINE = "own dataclasses"
