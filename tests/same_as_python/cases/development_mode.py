# Development mode reports every file that is left open: the recorder leaves none.
import time

time.sleep(1.2)
print("end")
