"""Runs the small life again and again, each time in a process of its own, and stops it at one I/O call further on.

    python -m tests.interrupts.runner SHIM DIRECTORY WRITE_PATH FLUSH_MODE BACKEND EVENT KIND FIRST STEP

EVENT: signal (the main thread's handler closes the store), fork (a child tries every call), close (another thread closes).
KIND: plain or aio. A run that does not end is dumped and killed by a watchdog. Prints a line of JSON: runs, and what was wrong.
"""
import asyncio
import ctypes
import faulthandler
import json
import os
import shutil
import signal
import sys
import threading
import traceback
from typing import Any

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from tests.crash.scenario import config_options
from tests.interrupts.child import try_everything
from tests.interrupts.life import SMALL, Life, judge

WATCHDOG_S = int(os.environ.get("RMQ_WATCHDOG_S", "60"))
RUNS_MAX = 2000


def watch(seconds: int) -> None:
    """Of a process that hangs: the stacks of all its threads on standard error, and its end."""
    faulthandler.enable()
    faulthandler.register(signal.SIGALRM, chain=True)
    signal.alarm(seconds)


class Stop:
    """The n-th I/O call, and the thread that does something there."""

    def __init__(self, shim: str, io: ProbeIo) -> None:
        self.library = ctypes.CDLL(shim)
        self.library.stop_calls.restype = ctypes.c_int64
        self.told, tell = os.pipe()
        answer, self.answer = os.pipe()
        self.library.stop_install(ctypes.c_void_p(io.address), tell, answer)

    def at(self, n: int, act: Any) -> threading.Thread:
        def run() -> None:
            if os.read(self.told, 1) == b"x":
                act()

        agent = threading.Thread(target=run, daemon=True)
        agent.start()
        self.library.stop_at(ctypes.c_int64(n))
        return agent

    def go_on(self) -> None:
        os.write(self.answer, b"x")


def one(shim: str, root: str, options: dict[str, Any], event: str, kind: str, n: int) -> dict[str, Any]:
    """One life, in this process, which ends with it."""
    io = ProbeIo(keep_bytes=False)
    stop = Stop(shim, io)
    store = MessageStore.open(root, _io=io, **options)
    life = Life(store)
    reached: list[bool] = []
    grandchildren: list[int] = []

    def close(*_: Any) -> None:
        stop.go_on()
        store.close()

    def act() -> None:
        reached.append(True)
        if event == "signal":
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        elif event == "close":
            life.attempt("close elsewhere", close)
        else:
            fork(store, life, root, options, grandchildren)
            stop.go_on()

    signal.signal(signal.SIGUSR1, lambda *_: life.attempt("handler", close))
    agent = stop.at(n, act)
    if kind == "aio":
        asyncio.run(life.run_async())
    else:
        life.run()
        life.attempt("clean", lambda: store.clean(0))
    life.things.clear()
    life.attempt("close", store.close)
    stop.library.stop_at(0)
    if reached:
        agent.join()
    for pid in grandchildren:
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status != 0:
            life.errors.append(f"the child of fork ended with {status}")
    if store._unfinished():
        life.errors.append("the store is not closed")
    return {"reached": bool(reached), "acked": [(offset, b.hex()) for offset, b in life.acked], "offset": life.offset,
            "errors": life.errors}


def fork(store: MessageStore, life: Life, root: str, options: dict[str, Any], made: list[int]) -> None:
    pid = os.fork()
    if pid:
        made.append(pid)
        return
    status = 3
    try:
        watch(WATCHDOG_S // 2)
        wrong = try_everything(store, life.things, root + ".child", options)
        if wrong:
            print(f"in the child of fork: {wrong}", file=sys.stderr, flush=True)
        status = 4 if wrong else 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def isolated(shim: str, root: str, options: dict[str, Any], event: str, kind: str, n: int) -> tuple[dict[str, Any] | None, str]:
    """`one` in a forked process: what it told, and what it wrote to standard error."""
    said = root + ".stderr"
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            fd = os.open(said, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            os.dup2(fd, 2)
            watch(WATCHDOG_S)
            told = json.dumps(one(shim, root, options, event, kind, n)).encode()
            with open(writer, "wb") as out:
                out.write(told)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(2)
    os.close(writer)
    with open(reader, "rb") as found:
        text = found.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with open(said) as file:
        errors = file.read()
    if status != 0:
        return None, f"ended with {status}: {errors[-6000:]}"
    return json.loads(text), errors


def main(shim: str, directory: str, config: tuple[str, str, str], event: str, kind: str, first: int, step: int) -> None:
    options = {**SMALL, **config_options(config)}
    runs, wrong = 0, {}
    for n in range(first, RUNS_MAX, step):
        root = os.path.join(directory, f"s{n}")
        life, errors = isolated(shim, root, options, event, kind, n)
        runs += 1
        if life is None:
            wrong[n] = [errors]
        else:
            life["acked"] = [(offset, bytes.fromhex(body)) for offset, body in life["acked"]]
            found = judge(root, life, options)
            if found:
                wrong[n] = [*found, errors[-3000:]]
        for path in (root, root + ".child"):
            shutil.rmtree(path, ignore_errors=True)
        os.unlink(root + ".stderr")
        if life is not None and not life["reached"]:
            break
    print(json.dumps({"runs": runs, "wrong": wrong}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], (sys.argv[3], sys.argv[4], sys.argv[5]), sys.argv[6], sys.argv[7], int(sys.argv[8]),
         int(sys.argv[9]))
