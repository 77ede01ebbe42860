# All warnings are errors, and the run directory vanishes meanwhile.
import shutil
import time
import warnings

warnings.simplefilter("error")
shutil.rmtree("../run", ignore_errors=True)
time.sleep(1.4)
print("ended well")
