print("WRONG: psutil imported")
