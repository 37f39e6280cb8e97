"""What a program does not use is not loaded for it: that is what keeps `import` and `rmqstore --help` short."""
import subprocess
import sys

import pytest

IMPORT = "from rmq_store import MessageStore"
HELP = """
from rmq_store.cli.start import main
sys.argv = ["rmqstore", "--help"]
try:
    main()
except SystemExit:
    pass
"""
PUT_AND_GET = """
from rmq_store import MessageStore
with MessageStore.open(sys.argv[1], profile="dev", manifest_enabled=False) as store:
    store.put("T", b"x", wait=True)
    assert store.wait_dispatched(5) and len(store.get("T", 0, 0)) == 1
"""
ASYNC_PUT = """
import asyncio
from rmq_store import AsyncMessageStore
async def put():
    async with await AsyncMessageStore.open(sys.argv[1], profile="dev", manifest_enabled=False) as store:
        await store.put("T", b"x", wait=True)
asyncio.run(put())
"""
SERVE = """
import io, signal
from rmq_store.cli.start import main
class Said(io.StringIO):
    def flush(self):
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:      # it serves
            signal.raise_signal(signal.SIGTERM)
sys.stdout = Said()
sys.argv = ["rmqstore", "serve", sys.argv[1], "--listen", "127.0.0.1:0", "--namesrv-listen", "127.0.0.1:0"] + [
    word for option in ("segment_size_bytes=1048576", "index_slots=1000", "index_entries_max=4000")
    for word in ("-o", option)]
assert main() == 0 and "listens" in sys.stdout.getvalue()
sys.stdout = sys.__stdout__
"""
DEAR = {"asyncio", "psutil", "crc32c"}
# What the standard library has of modules that are large, and that a store needs for nothing.
LARGE = {"dataclasses", "inspect", "ast", "ipaddress", "random", "hashlib", "pathlib", "urllib.parse", "ctypes",
         "datetime", "subprocess", "uuid", "decimal", "statistics", "http.client", "email"}
ELSEWHERE = {"rmq_store.aio", "rmq_store.metrics", "rmq_store.spark", "rmq_store.cli", "rmq_store.bench", "rmq_store.upkeep",
             "rmq_store.services.backup", "rmq_store.services.integrity.scrubbing", "rmq_store.services.integrity.verification"}


MODULES_MAX, OTHERS_MAX = 310, 112        # each one costs a third of a millisecond before a broker serves


@pytest.mark.parametrize(("code", "unused"), [
    (IMPORT, DEAR | ELSEWHERE | LARGE | {"tomllib", "importlib.resources", "importlib.metadata", "ssl", "socket"}),
    (HELP, DEAR | {"importlib.resources", "rmq_store.store", "rmq_store.access", "rmq_store.opened", "rmq_store.log"}),
    (PUT_AND_GET, DEAR | ELSEWHERE),
    (SERVE, DEAR | LARGE | ELSEWHERE - {"rmq_store.cli"} | {"ssl", "shutil", "importlib.resources"}),
    (ASYNC_PUT, {"psutil", "crc32c"} | ELSEWHERE - {"rmq_store.aio"}),
], ids=["import", "help", "put and get", "serve", "asyncio"])
def test_what_is_not_used_is_not_loaded(tmp_path, code, unused):
    """In a process of its own, as pytest has loaded nearly everything."""
    code = f"import sys\n{code}\nprint(*sorted({unused!r} & {{*sys.modules}}), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "s")], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "\n")


def test_a_broker_loads_few_modules_and_one_shared_object(tmp_path):
    count = """
print(sum(name.startswith("rmq_store") for name in sys.modules), sum(not name.startswith("rmq_store") for name in sys.modules))
print(*{line.split()[-1] for line in open("/proc/self/maps") if "/rmq_store/" in line and ".so" in line})
"""
    done = subprocess.run([sys.executable, "-c", f"import sys\n{SERVE}{count}", str(tmp_path / "s")], capture_output=True,
                          text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    numbers, shared = done.stdout.splitlines()
    ours, others = map(int, numbers.split())
    assert ours <= MODULES_MAX and others <= OTHERS_MAX, "load the new module where it is first used"
    assert len(shared.split()) == 1
