WHERE = "src"
