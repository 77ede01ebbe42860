print("WRONG: numpy imported")
