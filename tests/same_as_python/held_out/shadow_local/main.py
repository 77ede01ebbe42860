# Checks: siblings with names a profiler could use for itself (record, spans, hooks, clock, utils, trace, sampler, cli, report, store, writer, sitecustomize, usercustomize) belong to the script.
import sys
for name in "record spans hooks clock utils tracer sampler cli report store writer recorder envs agent profile version core".split():
    m = __import__(name)
    print(name, getattr(m, "MINE", None))
print("sitecustomize" in sys.modules and getattr(sys.modules["sitecustomize"], "MINE", None))
