"""A flush back end of another package: found by its entry point, used for every write and sync, its errors final."""
import errno
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from rmq_store.log.flush import backend
from tests.soon import until

# The probe does not see what functions of another package do.
pytestmark = pytest.mark.untraced
HEADER = Path(backend.__file__).parent
SOURCE = r"""
#include "rmq_backend.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Counters that the test reads by ctypes; fail_...: the errno of the next calls of that kind. */
int opened, writes, syncs, closed, fail_open, fail_write, fail_sync;
long long bytes;
char place[4096];

static int open_it(const char *directory, void **state)
{
    strncpy(place, directory, sizeof place - 1);
    *state = &bytes;
    return fail_open ? -ENODEV : (opened++, 0);
}
static int write_it(void *state, int fd, const void *from, size_t size, int64_t offset)
{
    if (fail_write)
        return -fail_write;
    writes++;
    *(long long *)state += (long long)size;
    for (size_t done = 0; done < size; ) {
        ssize_t n = pwrite(fd, (const char *)from + done, size - done, offset + (int64_t)done);
        if (n < 0)
            return -errno;
        done += (size_t)n;
    }
    return 0;
}
static int sync_it(void *state, int fd, void *map, int64_t begin, int64_t end)
{
    if (fail_sync || (opened && state != &bytes) || map == NULL || begin > end)
        return fail_sync ? -fail_sync : -EIO;
    syncs++;
    return fdatasync(fd) < 0 ? -errno : 0;
}
static void close_it(void *state) { closed += state == &bytes; }

rmq_backend whole = { RMQ_BACKEND_VERSION, 0, open_it, write_it, sync_it, close_it };
rmq_backend least = { RMQ_BACKEND_VERSION, 0, NULL, NULL, sync_it, NULL };
rmq_backend newer = { RMQ_BACKEND_VERSION + 1, 0, NULL, NULL, sync_it, NULL };
rmq_backend empty = { RMQ_BACKEND_VERSION, 0, NULL, NULL, NULL, NULL };
"""
MODULE = """
import ctypes
lib = ctypes.CDLL({library!r})
new = ctypes.pythonapi.PyCapsule_New
new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

def capsule(name):
    return new(ctypes.addressof(ctypes.c_char.in_dll(lib, name)), b"rmq_store.flush_backend", None)

def whole(): return capsule("whole")
def least(): return capsule("least")
def newer(): return capsule("newer")
def empty(): return capsule("empty")
def broken(): raise ImportError("no card in this machine")
nothing = 5
"""
SMALL = {"segment_size_bytes": 1 << 20}
NAMES = ("whole", "least", "newer", "empty", "broken", "nothing")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    root = tmp_path_factory.mktemp("backend")
    (root / "b.c").write_text(SOURCE)
    subprocess.run(["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{HEADER}", str(root / "b.c"),
                    "-o", str(root / "b.so")], check=True)
    return root / "b.so"


@pytest.fixture
def offered(library, tmp_path, monkeypatch):
    """The package that offers them is installed: its module."""
    copy = library.with_name(f"{tmp_path.name}.so")      # counters of its own; it stays mapped
    shutil.copy(library, copy)
    site = tmp_path / "site"
    (site / "cards-1.0.dist-info").mkdir(parents=True)
    (site / "cards.py").write_text(MODULE.format(library=str(copy)))
    (site / "cards-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: cards\nVersion: 1.0\n")
    (site / "cards-1.0.dist-info" / "entry_points.txt").write_text(
        "[rmq_store.flush_backends]\n" + "".join(f"{name} = cards:{name}\n" for name in NAMES))
    monkeypatch.syspath_prepend(str(site))
    sys.modules.pop("cards", None)
    import cards
    yield cards
    sys.modules.pop("cards", None)


def number(module, name, value=None):
    import ctypes
    found = ctypes.c_int.in_dll(module.lib, name)
    if value is not None:
        found.value = value
    return found.value


@pytest.mark.parametrize("path", ["mmap", "pool"])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_every_write_and_sync_is_its_own(offered, tmp_path, path, mode):
    options = {"write_path": path, "flush_mode": mode, **SMALL}
    with MessageStore.open(tmp_path / "s", flush_backend="whole", **options) as store:
        for i in range(3000):
            store.put("T", b"%06d" % i * 100, wait=i % 1000 == 0)
        store.flush()
        assert store.options.flush_backend == store.stats()["flush_backend"] == "whole"
        assert number(offered, "opened") == 1 and number(offered, "syncs") >= 2
        assert (number(offered, "writes") > 0) == (path == "pool")
    assert number(offered, "closed") == 1
    with MessageStore.open(tmp_path / "s", **options) as store:
        assert [bytes(m.body) for m in store.scan("T", 0)] == [b"%06d" % i * 100 for i in range(3000)]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.ENOMEM, errno.EAGAIN], ids=errno.errorcode.get)
@pytest.mark.parametrize("kind", ["write", "sync"])
def test_its_error_is_final(offered, tmp_path, kind, code):
    """Also one of those for which the store's own writes wait: its write may sync as well."""
    store = MessageStore.open(tmp_path / "s", flush_backend="whole", write_path="pool", flush_mode="sync", **SMALL)
    store.put("T", b"one")
    number(offered, f"fail_{kind}", code)
    with pytest.raises(errors.DurabilityError) as error:
        store.put("T", b"two")
    assert error.value.errno == code
    done = number(offered, "writes"), number(offered, "syncs")
    number(offered, f"fail_{kind}", 0)
    with pytest.raises(errors.DurabilityError):
        store.put("T", b"three")
    with pytest.raises(errors.DurabilityError):
        store.close()
    assert number(offered, "closed") == 1 and (number(offered, "writes"), number(offered, "syncs")) == done
    with MessageStore.open(tmp_path / "s", write_path="pool", flush_mode="sync", **SMALL) as store:
        assert next(iter(store.scan("T", 0))).body == b"one"


def test_the_store_s_own_write_waits_for_what_it_lacks(offered, tmp_path):
    """A back end without `write`: nothing else syncs there."""
    probe = ProbeIo()
    with MessageStore.open(tmp_path / "s", _io=probe, flush_backend="least", write_path="pool", **SMALL) as store:
        store.put("T", b"one", wait=True)
        probe.fail("pwrite", 1, errno.ENOSPC, path="/commitlog/", sticky=True)
        store.put("T", b"two")
        until(lambda: probe.hits > 2)
        assert store.stats()["errno"] == 0
        probe.clear()
        store.flush()
        assert store.put("T", b"three", wait=True).status == 0
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        assert [bytes(m.body) for m in store.scan("T", 0)] == [b"one", b"two", b"three"]


@pytest.mark.parametrize(("name", "said"), [
    ("newer", "it is of version 2 of rmq_backend.h, and this is 1"), ("empty", "it has no function sync"),
    ("nothing", "its package gives a int"), ("broken", "raised ImportError: no card in this machine")])
def test_what_cannot_be_used_is_refused_by_name(offered, tmp_path, name, said):
    with pytest.raises(errors.BackendUnavailable, match=f"flush_backend '{name}' cannot be used here: .*{said}"):
        MessageStore.open(tmp_path / "s", flush_backend=name, **SMALL)
    number(offered, "fail_open", 1)
    with pytest.raises(OSError, match="opening flush_backend whole"):
        MessageStore.open(tmp_path / "s", flush_backend="whole", **SMALL)
    MessageStore.open(tmp_path / "s", **SMALL).close()           # no lock is left behind


def test_an_unknown_name_tells_those_that_there_are(offered, tmp_path):
    with pytest.raises(errors.ConfigError, match=r"'io_uring' or 'broken' or 'empty' or .*'whole'"):
        MessageStore.open(tmp_path / "s", flush_backend="cassette")


@pytest.mark.parametrize("name", ["auto", "msync", "fdatasync", "io_uring"])
@pytest.mark.parametrize("path", ["mmap", "pool"])
def test_a_reader_may_be_given_the_writer_s_options(tmp_path, name, path):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        store.put("T", b"x")
    with MessageStore.open(tmp_path / "s", flush_backend=name, write_path=path, readonly=True, **SMALL) as store:
        assert len(store.get("T", 0, 0)) == 1


def test_a_reader_needs_no_package(offered, tmp_path):
    with MessageStore.open(tmp_path / "s", flush_backend="whole", **SMALL) as store:
        store.put("T", b"x")
    with MessageStore.open(tmp_path / "s", flush_backend="whole", readonly=True, **SMALL) as store:
        assert len(store.get("T", 0, 0)) == 1
    assert number(offered, "opened") == 1
