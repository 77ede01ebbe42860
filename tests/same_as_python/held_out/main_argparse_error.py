# Checks: argparse usage errors (program name is the script's base name) on stderr with exit code 2.
import argparse
p = argparse.ArgumentParser()
p.add_argument("--seed", type=int, required=True)
p.add_argument("--run", action="store_true")
p.parse_args()
