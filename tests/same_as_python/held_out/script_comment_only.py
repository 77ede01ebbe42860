# Checks: a script with nothing but a comment: no output, code 0.
