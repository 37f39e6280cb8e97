"""A process with few descriptors: what looks at a store holds few, however many queues there are, and names the limit."""
import errno
import os
import resource
import subprocess
import sys

import pytest

import rmq_store
from rmq_store import MessageStore, errors
from rmq_store.base.io.wants import limit_named

QUEUES = 100
SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 2000, "index_slots": 100, "index_entries_max": 1000}
pytestmark = pytest.mark.untraced       # limits of the process are in the way of the trace


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    path = tmp_path_factory.mktemp("few") / "s"
    with MessageStore.open(path, **SMALL) as store:
        for i in range(2 * QUEUES):
            store.put(f"t{i % QUEUES}", b"x", keys=f"k{i}")
    return path


def limited(root, limit, *words):
    return subprocess.run([sys.executable, "-m", "rmq_store", words[0], str(root), *words[1:]], capture_output=True, text=True,
                          timeout=120, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))


@pytest.mark.parametrize("limit", [20, 64])
def test_the_number_of_queues_does_not_matter(root, limit):
    done = limited(root, limit, "verify")
    assert (done.returncode, done.stderr) == (0, "") and "nothing wrong" in done.stdout
    done = limited(root, limit, "repair", "--dry-run")
    assert (done.returncode, done.stderr) == (0, "") and "nothing to repair" in done.stdout


@pytest.mark.parametrize("free", (0, 2, 5))
@pytest.mark.parametrize("call", ["new", "readonly", "verify", "backup"])
def test_the_message_names_the_limit_and_the_cure(root, tmp_path, call, free):
    with MessageStore.open(tmp_path / "own", **SMALL) as store:
        calls = {"new": lambda: MessageStore.open(tmp_path / "new", **SMALL).close(),
                 "readonly": lambda: MessageStore.open(root, readonly=True).close(),
                 "verify": lambda: list(rmq_store.verify(root)),
                 "backup": lambda: store.backup(tmp_path / "backups")}
        store.put("T", b"x", wait=True)
        calls[call]() if call == "backup" else None       # what it imports is there
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        held = []
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 8, before[1]))
            with pytest.raises(OSError, match="Too many"):
                while True:
                    held.append(os.open(os.devnull, os.O_RDONLY))
            for _ in range(free):
                os.close(held.pop())
            calls[call]()
        except OSError as error:
            assert error.errno == errno.EMFILE and error.filename
            assert f"may have {highest + 8} open files (RLIMIT_NOFILE): raise the limit" in str(error)
        else:
            assert free > 0
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
            for fd in held:
                os.close(fd)


def test_an_error_that_says_it_stays():
    own = errors.OutOfResources(errno.EMFILE, "dispatch to the queues of", "/s")
    other = OSError(errno.ENOENT, "no", "/s")
    said = limit_named(OSError(errno.EMFILE, os.strerror(errno.EMFILE), "/s"))
    assert [limit_named(one) is one for one in (own, other, said)] == [True] * 3
    assert said.filename == "/s" and str(said).count("raise the limit") == 1
