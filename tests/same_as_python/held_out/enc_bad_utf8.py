# Checks: invalid UTF-8 without cookie: SyntaxError text and code 1.
print('café')
