# Checks: -m with a package without __main__: message and exit code 1, after its __init__ has run.
print("init ran")
