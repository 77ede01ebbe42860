# Checks: umask is unchanged, files get the right mode; os.chdir away before the end and a removed old folder; relative paths at exit.
import os, stat, atexit
m = os.umask(0o027); print(oct(m))
open("f.txt", "w").write("x"); os.mkdir("d"); print(oct(stat.S_IMODE(os.stat("f.txt").st_mode)), oct(stat.S_IMODE(os.stat("d").st_mode)))
os.chdir("d"); atexit.register(lambda: print(os.path.basename(os.getcwd()), sorted(os.listdir("."))))
open("in_d.txt", "w").close()
print(sorted(os.listdir(".")))
