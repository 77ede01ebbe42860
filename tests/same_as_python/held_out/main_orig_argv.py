# Checks (strict): sys.orig_argv is interpreter, script, arguments (length and last three).
import sys
print([a.rsplit("/", 1)[-1] for a in sys.orig_argv[-3:]], len(sys.orig_argv))
