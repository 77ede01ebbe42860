# Checks: warnings turned into errors by the script give Python's traceback through warnings.warn.
import warnings
warnings.simplefilter("error")
def lib():
    warnings.warn("old API", DeprecationWarning, stacklevel=2)
def user():
    lib()
user()
