NAME = "the real folder"
