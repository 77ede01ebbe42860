# A syntax error is reported by Python, with its exit code.
def f(:
