# Checks: PYTHONDEVMODE=1: ResourceWarnings of the script (unclosed file) and only these; BytesWarning filter; faulthandler on.
import sys, faulthandler
print(sys.flags.dev_mode, faulthandler.is_enabled(), sys.warnoptions)
def leak():
    f = open("leak.txt", "w")
leak()
import asyncio
async def never(): pass
never()
print("end")
