# Checks: print, time.sleep, perf_counter, open keep their identity as C builtins: not bound as methods in classes, repr, type, inspect, pickle, signature.
import builtins, time, inspect, copy, types
class Logger:
    log = print
    pause = time.sleep
    now = time.perf_counter
Logger().log("not bound"); Logger().pause(0); print(type(Logger().now()).__name__)
for f in (print, time.sleep, time.perf_counter, time.time, time.monotonic, input, open, len, __build_class__, __import__):
    print(repr(f), type(f).__name__, f.__name__, f.__qualname__, f.__module__, inspect.isbuiltin(f), isinstance(f, types.BuiltinFunctionType), hasattr(f, "__wrapped__"), hasattr(f, "__code__"))
print(inspect.signature(print), print.__self__ is builtins, print.__doc__[:30], copy.deepcopy(print) is print, time.sleep.__doc__[:12])
print(str(inspect.signature(time.sleep)) if time.sleep.__text_signature__ else "no signature", {print: 1}[builtins.print])
import functools; print(functools.partial(print, "p").func is print)
