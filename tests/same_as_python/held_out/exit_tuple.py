# Checks: SystemExit with two arguments prints the tuple, code 1; SystemExit.code is a tuple.
raise SystemExit(3, "two")
