print("WRONG: uuid imported")
