# Checks: sys.exit("text") prints the text (non-ASCII, two lines) on stderr and ends with code 1.
import sys
print("out")
sys.exit("Fehler: größer\nzweite Zeile")
