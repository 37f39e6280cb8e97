"""How a command begins and ends: Ctrl-C at any moment of its start, streams that are closed or full, readers that go away."""
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from rmq_store import MessageStore
from rmq_store.version import VERSION

SMALL = {"segment_size_bytes": 1 << 16, "index_slots": 100, "index_entries_max": 1000}
# Runs the command line, and sends Ctrl-C as soon as the module MODULE is to be imported, or the function of that name called.
INTERRUPTED = """
import importlib.abc, os, signal, sys
module, sys.argv = sys.argv[1], ["rmqstore", *sys.argv[2:]]
class Interrupt(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupt())
if module == "open":
    import rmq_store.store
    rmq_store.store.infer_sizes = lambda *arguments: os.kill(os.getpid(), signal.SIGINT)
import runpy
runpy.run_module("rmq_store", run_name="__main__", alter_sys=False)
"""


@pytest.fixture
def root(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        for i in range(200):
            store.put("T", b"message %d " % i * 40)
    return tmp_path / "s"


def run(*words, code=None, **how):
    return subprocess.run([sys.executable, *(["-m", "rmq_store"] if code is None else ["-c", code]), *map(str, words)],
                          capture_output=True, timeout=120, **how)


@pytest.mark.parametrize("module", ["rmq_store.cli.main", "rmq_store.errors", "rmq_store.access.core._core", "rmq_store.store",
                                    "rmq_store.log.recovery.places", "rmq_store.cli.get", "open"])
def test_ctrl_c_while_it_starts(root, module):
    done = run(module, "get", root, "-t", "T", code=INTERRUPTED)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_importing_the_package_imports_nothing_of_the_store():
    """Else Ctrl-C would meet an import that nobody guards."""
    code = ("import sys, rmq_store; assert not [m for m in sys.modules if m.startswith('rmq_store.') and m not in "
            "('rmq_store.version', 'rmq_store.modules')]; import rmq_store as r; "
            "r.MessageStore, r.errors.RmqStoreError, r.verify, r.store; "
            "assert {*r.__all__} <= {*dir(r)}; assert not hasattr(r, 'nothing')")
    done = run(code=code)
    assert (done.returncode, done.stderr) == (0, b"")


def shell(words):
    return subprocess.run(["bash", "-c", words.replace("rmqstore", f"{sys.executable} -m rmq_store")], capture_output=True,
                          text=True, timeout=120)


def test_a_reader_that_goes_away(root):
    done = shell(f"set -o pipefail; rmqstore get {root} -t T -c 200 | head -1")
    assert (done.returncode, done.stderr) == (141, "") and done.stdout.startswith("T/0[0]")
    done = shell(f"rmqstore get {root} -t T -c 200 | head -1")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", ["stat", "get -t T -c 200", "verify", "config show"])
@pytest.mark.parametrize(("where", "why"), [(">&-", "Bad file descriptor"), ("> /dev/full", "No space left on device")])
def test_output_that_takes_nothing(root, words, where, why):
    command, *rest = (words if "show" in words else words.replace(" ", f" {root} ", 1) if " " in words else f"{words} {root}"
                      ).split(" ", 1)
    done = shell(f"rmqstore {command} {' '.join(rest)} {where}")
    assert (done.returncode, done.stdout, done.stderr) == (3, "", f"rmqstore {command}: {why}: standard output\n")


def test_streams_that_are_closed_become_no_file_of_the_store(tmp_path):
    """What the store opens would have the numbers 0 to 2, and what is printed would go there."""
    done = shell(f"rmqstore put {tmp_path}/s -t T -p NAME=x --whole {__file__} -o segment_size_bytes=65536 "
                 "-o index_enabled=false <&- >&- 2>&-")
    assert done.returncode == 3         # what it had to say, nobody could be told
    with MessageStore.open(tmp_path / "s", readonly=True) as store:
        assert bytes(store.get("T", 0, 0)[0].body) == pathlib.Path(__file__).read_bytes() and not store.cut_bytes
    assert shell(f"rmqstore put {tmp_path}/s -t T <&-").stderr == "rmqstore put: Bad file descriptor\n"


def test_what_no_encoding_has_is_shown_all_the_same(tmp_path):
    name = os.fsdecode(str(tmp_path / "caf").encode() + b"\xe9")  # codespell:ignore caf
    with MessageStore.open(name, **SMALL) as store:
        store.put("T", "grün".encode())
    done = run("get", name, "-t", "T", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0 and b"gr\\xfcn" in done.stdout
    assert run("config", "show", name, "--changed").returncode == 0
    done = run("get", name, "-t", "U", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 1 and b"caf\\udce9 never had a message: the topics are T" in done.stderr  # codespell:ignore caf


def test_version():
    done = run("--version")
    assert (done.returncode, done.stdout.decode()) == (0, f"rmqstore {VERSION}\n")


def test_ctrl_c_stays_ignored_where_it_was(root):
    """As a shell starts what runs in its background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        done = run("rmq_store.cli.get", "get", root, "-t", "T", "-c", "1",
                   code=INTERRUPTED.replace("signal.signal(signal.SIGINT, signal.default_int_handler)\n", ""))
    finally:
        signal.signal(signal.SIGINT, before)
    assert done.returncode == 0 and done.stdout.startswith(b"T/0[0]")
