V = "from pyc"
