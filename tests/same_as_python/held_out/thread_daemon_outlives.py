# Checks: a daemon thread that still runs at the end is dropped silently; its finally does not run; exit code of main stays.
import threading, time, sys
def work():
    try:
        time.sleep(30)
    finally:
        print("WRONG: finally of a daemon")
threading.Thread(target=work, daemon=True).start()
threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()
print("main ends")
sys.exit(8)
