# Checks: an uncaught subclass of SystemExit, raised "from" another error, exits silently with its code attribute changed afterwards.
class Stop(SystemExit):
    pass
try:
    1 / 0
except ZeroDivisionError as e:
    s = Stop(3)
    s.code = 9
    raise s from e
