# Checks (strict): all names in os.environ and in the C environment (by env(1)) and /proc/self/environ names, including HOTLOOP* and PYTHON*.
import os, subprocess
skip = {"_", "SHLVL", "LC_CTYPE"}
print(sorted(k for k in os.environ if k not in skip))
print(sorted(set(l.split("=")[0] for l in subprocess.run(["env"], capture_output=True, text=True).stdout.splitlines()) - skip))
print({k: v for k, v in os.environ.items() if k.startswith("PYTHON")})
print(sorted({x.split(b"=")[0].decode() for x in open("/proc/self/environ", "rb").read().split(b"\0") if x} - skip))
