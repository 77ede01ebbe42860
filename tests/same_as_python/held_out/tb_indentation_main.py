# Checks: TabError / IndentationError in the script itself.
if True:
    x = 1
	y = 2
