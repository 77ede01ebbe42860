MINE = "own heapq"
