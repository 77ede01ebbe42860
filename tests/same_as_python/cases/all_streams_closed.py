# No stream is open: files that the script opens get their numbers.
import sys

with open("out.txt", "w") as file:
    file.write(f"{sys.stdin} {sys.stdout} {sys.stderr} {file.fileno()}")
with open("second.txt", "w") as a, open("third.txt", "w") as b, open("fourth.txt", "w") as c:
    for each in (a, b, c):
        each.write(f"{each.fileno()}\n")
