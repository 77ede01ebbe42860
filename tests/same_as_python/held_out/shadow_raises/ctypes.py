print("WRONG: ctypes imported")
