A = 1
from . import circ_b
