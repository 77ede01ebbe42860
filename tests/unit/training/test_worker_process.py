"""Worker processes leave signals to their parent, and end with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from hotloop.clock import now_ns
from hotloop.training.worker_process import STOPPING, start_worker

TIMEOUT_S = 60.0
PARENTS = {
    "plain": (
        "from hotloop.training.worker_process import start_worker\n"
        "child = start_worker('import time; print(\"ready\", flush=True); time.sleep(600)')\n"
    ),
    "from a thread": (
        "import threading\nfrom hotloop.training.worker_process import start_worker\n"
        "program = 'import time; from hotloop.training.worker_process import end_with_parent\\n'\n"
        "program += 'end_with_parent(0); print(\"ready\", flush=True); time.sleep(600)'\n"
        "import subprocess\n"
        "def start(): global child; child = start_worker(program, stdin=subprocess.PIPE)\n"
        "thread = threading.Thread(target=start); thread.start(); thread.join()\n"
    ),
    "CarRacing": (
        "from hotloop.training.envs.carracing import CarRacingVectorEnv\n"
        "env = CarRacingVectorEnv(2, workers=1)\nenv.reset(seed=0)\nchild = env._workers[0]._process\nprint('ready')\n"
    ),
}


def until_timeout() -> Iterator[None]:
    end = now_ns() + round(TIMEOUT_S * 1e9)
    while now_ns() < end:
        yield
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_worker_ignores_stop_signals_from_the_start() -> None:
    worker = start_worker("import time; time.sleep(0.5); print('done')", stdout=subprocess.PIPE, text=True)
    for number in STOPPING:
        worker.send_signal(number)
    out, _ = worker.communicate(timeout=TIMEOUT_S)
    assert (worker.returncode, out) == (0, "done\n")


def test_a_signal_during_worker_start_is_not_lost() -> None:
    received = []
    before = signal.signal(signal.SIGHUP, lambda number, frame: received.append(number))
    try:
        worker = start_worker(f"import os, signal; os.kill({os.getpid()}, signal.SIGHUP)")
        worker.wait(TIMEOUT_S)
        for _ in until_timeout():
            if received:
                break
    finally:
        signal.signal(signal.SIGHUP, before)
    assert received == [signal.SIGHUP]
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & set(STOPPING)


@pytest.mark.parametrize("kind", PARENTS)
def test_a_stopped_worker_does_not_outlive_its_parent(kind: str) -> None:
    if kind == "CarRacing":
        pytest.importorskip("Box2D")
    program = f"{PARENTS[kind]}\nprint(child.pid, flush=True)\nimport time; time.sleep(600)"
    # In its own session, like a training in a terminal or under a service manager.
    parent = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert parent.stdout is not None
    lines = sorted(parent.stdout.readline().strip() for _ in range(2))  # process id and "ready", in either order
    assert lines[1] == "ready", lines
    child = int(lines[0])
    os.kill(child, signal.SIGSTOP)
    for _ in until_timeout():
        if psutil.Process(child).status() == psutil.STATUS_STOPPED:
            break
    parent.kill()
    parent.wait()
    parent.stdout.close()
    for _ in until_timeout():
        if not is_running(child):
            return
    os.kill(child, signal.SIGKILL)
    pytest.fail("the worker lives on")
