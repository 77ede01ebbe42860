from . import util
from .sub.leaf import leaf
def run():
    return leaf() + " " + util.helper()
