# Checks: -m pkg.main where pkg/__init__ raises: traceback as in Python, code 1.
raise ValueError("init fails")
