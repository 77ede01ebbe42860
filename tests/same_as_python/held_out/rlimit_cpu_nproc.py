# Checks: resource limits, priority, rusage children, process group and session are as given by the caller.
import os, resource
print([resource.getrlimit(getattr(resource, n)) for n in sorted(dir(resource)) if n.startswith("RLIMIT_")], os.getpriority(os.PRIO_PROCESS, 0), os.getpgrp() == os.getpid(), os.getsid(0) == os.getpid(), sorted(os.sched_getaffinity(0)), os.sched_getscheduler(0))
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
