# Checks: stdout into a pipe is block-buffered: text unflushed at os.abort is lost, flushed text arrives; stderr is line-buffered.
import sys, os, resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
print(sys.stdout.line_buffering, sys.stderr.line_buffering, sys.stdout.write_through)
print("flushed", flush=True)
print("lost 1"); sys.stderr.write("stderr complete line\n"); sys.stderr.write("stderr part")
os.abort()
