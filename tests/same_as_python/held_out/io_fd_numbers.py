# Checks (strict): the first descriptors the script opens have the numbers 3 and 4 (as shell scripts and old daemons assume).
import os
print(os.open(__file__, os.O_RDONLY), os.dup(0), os.pipe())
