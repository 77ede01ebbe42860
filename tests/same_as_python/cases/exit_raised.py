# The end of a program: raise ValueError("wrong")

print("working", flush=True)
raise ValueError("wrong")
