MINE = "own argparse"
