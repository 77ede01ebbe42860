# Checks: SyntaxError in an imported sibling shows file, line and caret; caught once, then uncaught; the import leaves no broken module behind.
import sys
try:
    import broken
except SyntaxError as e:
    print(e.msg, e.lineno, e.offset, e.text, e.end_lineno, e.end_offset)
print("broken" in sys.modules)
import broken
