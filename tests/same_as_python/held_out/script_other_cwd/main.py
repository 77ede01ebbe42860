# Checks: cwd is another folder than the script's; relative output files land in the cwd.
import os, sys
open("result.txt", "w").write("in " + os.path.basename(os.getcwd()))
print(os.path.basename(os.getcwd()), os.path.exists('keep.txt'), os.path.basename(os.path.dirname(__file__)) != "work")
