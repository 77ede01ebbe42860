x = "\d"
import time
t=time.time()
while time.time()-t<2: pass
