V = "from PYTHONPATH"
