V = "utils of the user"
