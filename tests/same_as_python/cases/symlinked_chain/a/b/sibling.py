NAME = "end of the chain"
