# Checks: script file name beginning with a dash, in a subfolder.
import sys
print(sys.argv)
