# Checks: file descriptors: the script opens files and gets the lowest free numbers (3, 4, ...), dup2 to fixed numbers, writes by number.
import os
a = os.open("a.txt", os.O_WRONLY | os.O_CREAT); os.write(a, b"A")
for n in (3, 5, 7, 10, 33, 200):
    os.dup2(a, n); os.write(n, b"%d;" % n)
os.dup2(a, 1); print("into a.txt", flush=True)
f = os.fdopen(33, "w"); f.write("by 33"); f.close()
for n in (5, 7, 10, 200): os.close(n)
os.lseek(a, 0, 2)
