# Checks: threading.active_count and enumerate see only the script's own threads (programs wait until active_count() == 1).
import threading, time
print(threading.active_count(), [t.name for t in threading.enumerate()], threading.current_thread() is threading.main_thread())
for i in range(3):
    threading.Thread(target=time.sleep, args=(0.05,)).start()
end = time.monotonic() + 1.5
while threading.active_count() > 1 and time.monotonic() < end:
    time.sleep(0.02)
print("alone:", threading.active_count())
