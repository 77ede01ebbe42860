from .circ_a import A
B = A + 1
