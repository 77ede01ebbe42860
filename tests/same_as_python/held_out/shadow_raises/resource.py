print("WRONG: resource imported")
