# Checks: SyntaxError in the script itself: location and caret, no line of a launcher; code 1.
print("never printed")
for i in range(3)
    print(i)
