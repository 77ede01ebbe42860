# Checks: asyncio loop.add_signal_handler for SIGTERM: graceful stop, exit code 0.
import asyncio, os, signal, sys
async def main():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    asyncio.get_running_loop().call_later(0.1, os.write, 1, b"ready\n")
    await stop.wait()
    print("stopped by signal")
    p = await asyncio.create_subprocess_exec(sys.executable, "-c", "print('sub'); raise SystemExit(3)", stdout=asyncio.subprocess.PIPE)
    print((await p.communicate())[0], p.returncode)
asyncio.run(main())
