# PYTHONPATH and a sitecustomize of the user's are as ever.
import os
import sys

import helper

print(os.environ["PYTHONPATH"], helper.NAME, sys.modules["sitecustomize"].NAME, "lib" in " ".join(sys.path))
