# Checks: sys.exit of an IntEnum member / int subclass uses its value, __str__ is not called.
import sys, enum
class Code(enum.IntEnum):
    BAD = 42
    def __str__(self):
        print("WRONG: str called")
        return "x"
sys.exit(Code.BAD)
