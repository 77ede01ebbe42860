# Checks: -m pkg runs pkg/__main__.py; argparse prog name; sys.exit code.
import sys, argparse, os
from .cli import main
print(__name__, __package__, __spec__.name, os.path.basename(__file__))
print(argparse.ArgumentParser().prog)
sys.exit(main())
