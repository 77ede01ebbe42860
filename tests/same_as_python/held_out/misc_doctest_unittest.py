# Checks: unittest.main and doctest.testmod of __main__ in the script: discovery through __main__, failure report, exit code 0.
"""
>>> step(2)
3
"""
import unittest, doctest, sys, re, io
def step(x):
    """
    >>> step(1)
    2
    >>> step(5)
    7
    """
    return x + 1
class TestEnv(unittest.TestCase):
    def test_ok(self): self.assertEqual(step(1), 2)
    def test_warns(self):
        with self.assertWarns(UserWarning): __import__("warnings").warn("x")
    def test_logs(self):
        with self.assertLogs() as c: __import__("logging").error("y")
        self.assertEqual(len(c.output), 1)
print(doctest.testmod())
r = unittest.TextTestRunner(stream=io.StringIO(), verbosity=2).run(unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]))
print(r.testsRun, r.wasSuccessful())
sys.stderr = io.StringIO()
try: unittest.main(argv=["x", "TestEnv.test_ok"])
finally: print(re.sub(r"in [\d.]+s", "in Ts", sys.stderr.getvalue()))
