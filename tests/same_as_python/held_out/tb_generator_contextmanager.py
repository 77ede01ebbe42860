# Checks: exceptions thrown into generators and context managers (contextlib) around env.step; GeneratorExit and close order.
import contextlib
class GenEnv:
    def reset(self): return 0
    def step(self, a):
        try:
            x = yield a
            print("got", x)
            yield x
        except ValueError as e:
            print("thrown", e)
            yield "recovered"
        finally:
            print("closed")
g = GenEnv().step(1)
print(next(g), g.send(5), g.throw(ValueError("v")))
g.close()
@contextlib.contextmanager
def guard(name):
    print("enter", name)
    try:
        yield name
    except ZeroDivisionError:
        print("swallowed", name)
    finally:
        print("leave", name)
with guard("a"), contextlib.suppress(KeyError):
    {}["x"]
with guard("b"):
    1 / 0
with guard("c"):
    raise StopIteration("odd")
