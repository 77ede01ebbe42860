# Checks: default warning filters: DeprecationWarning shown only for __main__, once per place; UserWarning shown; filters list and registry untouched at start; showwarning is the default.
import sys, warnings
print([(f[0], f[2].__name__, str(f[3])) for f in warnings.filters], "__warningregistry__" in globals(), warnings.showwarning.__module__, warnings.formatwarning.__module__)
def f():
    warnings.warn("deprecated in main", DeprecationWarning)
    warnings.warn("user warning", UserWarning)
for _ in range(3): f()
exec(compile("import warnings\nwarnings.warn('from other module', DeprecationWarning)\nwarnings.warn('pending', PendingDeprecationWarning)", "other.py", "exec"), {"__name__": "other"})
with warnings.catch_warnings(record=True) as w:
    warnings.simplefilter("always"); f(); import gymnasium
print([str(x.message) for x in w if "main" in str(x.message) or "user" in str(x.message)])
print(sorted(str(k[0]) for k in __warningregistry__ if isinstance(k, tuple)))
