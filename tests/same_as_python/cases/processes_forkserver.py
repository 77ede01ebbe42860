# multiprocessing by forkserver: workers, a pool, a queue; environment and argv as ever.
import multiprocessing
import os
import sys


def work(queue):
    queue.put((sys.argv[1:], sorted(name for name in os.environ if "HOTLOOP" in name)))
    sys.exit(3)


def square(x):
    return x * x


if __name__ == "__main__":
    context = multiprocessing.get_context("forkserver")
    queue = context.Queue()
    process = context.Process(target=work, args=(queue,))
    process.start()
    print(queue.get())
    process.join()
    print(process.exitcode)
    with context.Pool(2) as pool:
        print(pool.map(square, range(5)))
