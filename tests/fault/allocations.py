"""Every allocation of the package's native code in a small life fails once, one after the other, in this process.

    LD_PRELOAD=failing_malloc.so python -m tests.fault.allocations SHIM DIRECTORY WRITE_PATH FLUSH_MODE BACKEND

Says on standard error which one is next, so that a crash has its number; prints one line of JSON.
"""
import ctypes
import errno
import gc
import importlib
import json
import logging
import os
import pkgutil
import shutil
import subprocess
import sys
import tempfile

import rmq_store
from rmq_store import _extensions
from rmq_store.base.io._io import ProbeIo
from rmq_store.errors import RmqStoreError
from tests.conftest import held
from tests.crash import scenario
from tests.fault.live import Live, usual

WARM_UP, N_MAX = 2, 2000
_MODULE = "_9rmq_store_4base_2io_3_io_"        # in Cython's names of the functions of rmq_store.base.io._io


def steps(live: Live) -> None:
    """What `usual` does, then what else takes memory: futures, long reads, keys, waiting, a listener."""
    store = live.store
    assert store is not None
    live.attempt("listener", lambda: store.add_arriving_listener(lambda *_: None))
    usual(live)
    one = scenario.message(len(live.sent))
    live.sent.append(one)
    live.state.append("unknown")
    if live.attempt("put_async", lambda: store.put_async(one.topic, one.body, queue_id=one.queue_id, keys=one.key, tags="tag",
                                                         wait=True).result(10)):
        live.state[-1] = "durable"
    live.attempt("wait_dispatched", lambda: store.wait_dispatched(0.05))
    live.attempt("get", lambda: store.get("T", 0, 0, 1000, "tag || other"))
    live.attempt("get wait", lambda: store.get("T", 7, 0, wait=0.001))
    live.attempt("scan", lambda: list(store.scan()))
    live.attempt("query", lambda: store.query_key("T", "key0"))
    live.attempt("time", lambda: store.offset_by_time("T", 0, 1))
    live.attempt("id", lambda: store.message_by_unique_key("T", "none"))
    live.put_many(3, 500)
    live.flush()


def good(error: BaseException) -> bool:
    """What a caller may be told where memory is short."""
    return isinstance(error, (MemoryError, RmqStoreError)) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)


def one_life(shim: ctypes.CDLL, root: str, config: tuple[str, str, str], n: int) -> tuple[bool, list[str]]:
    """(whether the n-th allocation came, what is wrong)"""
    live = Live(root, config, ProbeIo(keep_bytes=False))
    wrong: list[str] = []
    shim.failing_malloc_at(n)
    try:
        live.run(steps)
    except AssertionError as e:
        wrong.append(str(e))
    hit = bool(shim.failing_malloc_hits())
    shim.failing_malloc_at(0)
    wrong += [f"{name} raised {type(e).__name__}: {e}" for name, e in live.errors if not good(e)]
    told = [f"{name}: {type(e).__name__}" for name, e in live.errors]
    if wrong and "hangs" in wrong[0]:
        return hit, wrong
    judged = live.judge(root)
    if judged is not None:
        wrong.append(f"{judged}; errors {told}")
    live.store, live.errors = None, []
    gc.collect()
    closed = [fd for fd in (0, 1, 2) if not os.path.exists(f"/proc/self/fd/{fd}")]
    if closed:
        wrong.append(f"closed descriptors that are not its own: {closed}; errors {told}")
    left = held(root + "/")
    if left:
        wrong.append(f"still held: {sorted(left)}; errors {told}")
    return hit, wrong


def leave_probe_out(shim: ctypes.CDLL) -> None:
    """The probe's functions, and those of the module that makes probes: their memory is the test's."""
    file = ""
    table = subprocess.check_output(["readelf", "-sW", _extensions.__file__], text=True)
    for line in table[table.index(".symtab"):].splitlines():
        words = line.split()
        if len(words) != 8 or words[3] not in ("FILE", "FUNC"):
            continue
        if words[3] == "FILE":
            file = words[7]
        elif file.startswith("probe") or words[7].startswith(("probe_", "rmq_probe")) or _MODULE in words[7]:
            assert shim.failing_malloc_leave_out(ctypes.c_size_t(int(words[1], 16)), ctypes.c_size_t(int(words[2], 0))) == 0


def main() -> None:
    shim = ctypes.CDLL(sys.argv[1])
    leave_probe_out(shim)
    directory, config = sys.argv[2], (sys.argv[3], sys.argv[4], sys.argv[5])
    logging.getLogger("rmq_store").setLevel(logging.CRITICAL)
    for name in [module.name for module in pkgutil.walk_packages(rmq_store.__path__, "rmq_store.")] + sorted(_extensions.NAMES):
        if ".spark" not in name and not name.endswith("__main__"):
            importlib.import_module(name)               # which of them a life needs is not ours to know
    found: dict[str, list[str]] = {}
    n = 1 - WARM_UP             # the first lives make what the process keeps
    while n < N_MAX:
        root = tempfile.mkdtemp(dir=directory)
        print(n, file=sys.stderr, flush=True)
        hit, wrong = one_life(shim, root + "/s", config, max(n, 0))
        shutil.rmtree(root)
        if wrong:
            found[str(n)] = wrong
        if (n >= 1 and not hit) or any("hangs" in w for w in wrong):
            break
        n += 1
    print(json.dumps({"lives": n - 1, "wrong": found}))


if __name__ == "__main__":
    main()
