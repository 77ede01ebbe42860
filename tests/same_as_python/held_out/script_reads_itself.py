# Checks: the script reads its own source, inspect.getsource of functions and classes, getsourcefile, getmodule, linecache, __code__ attributes.
import inspect, linecache, hashlib, os, sys
class Env:
    def step(self, a):  # a comment
        return a
    @property
    def p(self):
        return 1
lam = lambda x: x
print(hashlib.md5(open(__file__, "rb").read()).hexdigest())
print(inspect.getsource(Env.step), inspect.getsource(Env), inspect.getsource(Env.p.fget), inspect.getsource(lam))
print(inspect.getsourcefile(Env) == __file__, inspect.getmodule(Env).__name__, inspect.getsourcelines(Env.step)[1], inspect.getcomments(Env.step))
print(Env.step.__code__.co_filename == __file__, Env.step.__code__.co_name, Env.step.__code__.co_firstlineno, Env.step.__code__.co_varnames)
print(linecache.getline(__file__, 5).strip(), inspect.getfile(Env.step) == __file__)
print(hashlib.md5(Env.step.__code__.co_code).hexdigest(), inspect.getsource(sys.modules["__main__"])[:9])
os.rename(__file__, "moved.py")
linecache.checkcache()
1 / 0
