# Checks: arguments that look like the tool's own (--help, --version, -m, -c, --, run, -o) are passed through untouched, with empty and odd strings.
import sys, os
print(os.path.basename(sys.argv[0]), sys.argv[1:], len(sys.argv))
