# Checks: uncaught ExceptionGroup with notes, nested groups and except*.
def make(i):
    try:
        raise ValueError(f"leaf {i}")
    except ValueError as e:
        e.add_note(f"note {i}\nsecond line")
        return e
try:
    raise ExceptionGroup("inner", [TypeError("t"), make(0)])
except* TypeError as g:
    print("handled", g.exceptions)
except* ValueError as g:
    raise ExceptionGroup("outer", [g, make(1), KeyError("k")])
