# Checks: concurrent.futures: pending jobs finish at exit, submit after shutdown raises, exceptions keep their traceback, ProcessPoolExecutor works.
import concurrent.futures as cf, time, sys, traceback
def job(x):
    if x == 3: raise ValueError(f"job {x}")
    return x * x
if __name__ == "__main__":
    with cf.ThreadPoolExecutor(2) as ex:
        fs = [ex.submit(job, i) for i in range(5)]
    print([f.result() if not f.exception() else repr(f.exception()) for f in fs])
    print([fr.name for fr in traceback.extract_tb(fs[3].exception().__traceback__)])
    try:
        ex.submit(job, 1)
    except RuntimeError as e:
        print(e)
    with cf.ProcessPoolExecutor(2) as ex:
        print(list(ex.map(job, range(3))))
        e = ex.submit(job, 3).exception()
        print(repr(e), str(e.__cause__).strip().splitlines()[-1], str(e.__cause__).count("File"))
    late = cf.ThreadPoolExecutor(1)
    for i in range(3):
        late.submit(lambda i=i: (time.sleep(0.05), print("late", i)))
    sys.exit(4)
