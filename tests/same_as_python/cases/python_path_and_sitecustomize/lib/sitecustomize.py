NAME = "site"
