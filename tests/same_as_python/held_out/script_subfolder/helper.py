WHERE = "WRONG: cwd"
