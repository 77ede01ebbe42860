# Checks: -m pkg.main where pkg/__init__ imports pkg.main already: runpy's RuntimeWarning on stderr, the code runs twice.
from . import main
