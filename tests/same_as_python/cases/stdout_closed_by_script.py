# The script closes its own stdout and stderr objects.
import sys

print("before")
sys.stdout.close()
sys.stderr.close()
