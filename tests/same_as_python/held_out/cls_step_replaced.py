# Checks: step replaced at run time (monkey patches by the user: counting wrapper on class and instance, functools.wraps, unittest.mock.patch.object), restored afterwards.
import functools, unittest.mock as mock
class Env:
    def reset(self): return 0
    def step(self, a): return a
e = Env(); e.reset(); e.step(1)
n = 0
orig = Env.step
@functools.wraps(orig)
def counting(self, a):
    global n; n += 1; return orig(self, a)
Env.step = counting; print([e.step(i) for i in range(3)], n, Env.step.__wrapped__ is orig); Env.step = orig
print(e.step(5), n, Env.step is orig)
with mock.patch.object(Env, "step", return_value="mocked") as m: print(e.step(7), m.call_args)
with mock.patch("time.sleep") as s, mock.patch("builtins.print") as p:
    import time; time.sleep(99); print("swallowed"); c = (s.call_args, p.call_args)
print(c, e.step(8))
m = mock.create_autospec(Env, instance=True); m.step.return_value = 3; print(m.step(1))
try: m.step(1, 2, 3)
except TypeError as x: print(x)
m = mock.MagicMock(); m.step(1); m.reset(); print(m.mock_calls)
