# Checks: asyncio: run, gather, coroutine and async-generator steps, timeouts, exceptions of tasks, cancellation, no running loop at start, policy untouched.
import asyncio, time
class Env:
    async def reset(self):
        await asyncio.sleep(0); return 0
    async def step(self, a):
        await asyncio.sleep(0.01)
        if a == 3: raise ValueError("step 3")
        return a, 1.0, False, {}
class GenEnv:
    def reset(self): return 0
    async def step(self, n):
        for i in range(n):
            yield i
print(asyncio.iscoroutinefunction(Env.step), __import__("inspect").isasyncgenfunction(GenEnv.step), type(asyncio.get_event_loop_policy()).__name__)
async def main():
    e = Env()
    print(await e.reset(), await asyncio.gather(*(e.step(i) for i in range(4)), return_exceptions=True))
    print([x async for x in GenEnv().step(3)])
    try:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(5)
    except TimeoutError:
        print("timeout")
    t = asyncio.create_task(e.step(1)); t.cancel()
    try: await t
    except asyncio.CancelledError: print("cancelled")
    print(await asyncio.to_thread(time.sleep, 0.01), len(asyncio.all_tasks()))
    q = asyncio.Queue(1); await q.put(1)
    try: q.put_nowait(2)
    except asyncio.QueueFull: print("full")
    asyncio.create_task(e.step(3)); await asyncio.sleep(0.03)
    async with asyncio.TaskGroup() as g:
        g.create_task(e.step(3), name="bad")
asyncio.run(main())
