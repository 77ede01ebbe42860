# Checks: runpy, exec, compile, timeit, code.interact with given input, ast, dis, symtable in the script; nested run_path leaves sys.argv and __main__ alone.
import runpy, sys, timeit, ast, code, io, os
if __name__ == "__main__":
    r = runpy.run_path(__file__, run_name="inner"); print(r["VALUE"], sys.modules["__main__"].__dict__ is globals(), os.path.basename(sys.argv[0]))
    print(timeit.timeit("x += 1", "x = 0", number=10) < 1, eval(compile(ast.parse("1+2", mode="eval"), "f", "eval")))
    old = sys.stderr; sys.stderr = io.StringIO()
    code.InteractiveInterpreter({"a": 5}).runsource("print(a)\n"); code.InteractiveInterpreter().runsource("1/0"); err = sys.stderr.getvalue(); sys.stderr = old; print(err)
    exec("def step(self, a): return a\nclass Env: step = step; reset = lambda self: 0", g := {"__name__": "dyn"}); print(g["Env"]().step(3))
    sys.displayhook("shown"); print(__builtins__._)
VALUE = __name__
