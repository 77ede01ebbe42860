# Checks: SIGINT during asyncio.run cancels the main task, finally runs, then KeyboardInterrupt is turned into exit code 130 by the script.
import asyncio, os
async def main():
    asyncio.get_running_loop().call_later(0.1, os.write, 1, b"ready\n")
    try:
        await asyncio.sleep(20)
    except asyncio.CancelledError:
        print("cancelled"); raise
    finally:
        print("cleanup")
try:
    asyncio.run(main())
except KeyboardInterrupt as e:
    print("KeyboardInterrupt", e.__cause__, type(e.__context__).__name__)
    e.__context__ = None
    raise SystemExit(130)
