print("WRONG: imported")
