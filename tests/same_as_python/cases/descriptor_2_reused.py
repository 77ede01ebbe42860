# A file of the script gets the number of stderr: nothing may be written into it.
import os

os.close(2)
fd = os.open("out.txt", os.O_WRONLY | os.O_CREAT)
print("descriptor", fd)
os.write(fd, b"mine only\n")
