"""Pages of the log ahead of the writer: in the page cache under synchronous flush, mapped as well under segment_warm, and as
zeros ahead of a stream of puts otherwise."""
import errno
import mmap
import random
import re
import threading
import time
from pathlib import Path

import pytest

from rmq_store import MessageStore, verify
from rmq_store.base.io._io import ProbeIo
from rmq_store.errors import SyncFailed
from tests.page_cache import cached
from tests.soon import until

SIZE = 32 << 20
AHEAD = 14 << 20         # of the sixteen MiB that are kept ready; more than one fault reads ahead


def mapped(file):
    """KiB of the file in this process's page tables."""
    smaps = Path("/proc/self/smaps").read_text()
    return sum(int(n) for n in re.findall(rf"{re.escape(str(file))}\n(?:[^\n]*\n)*?Rss: +(\d+) kB", smaps))


def first_file(store):
    return Path(store.path) / "commitlog" / f"{0:020d}"


@pytest.mark.parametrize("prezero", ["off", "window", "full"])
@pytest.mark.parametrize("write", [{"write_path": "mmap"}, {"write_path": "pool", "flush_backend": "fdatasync"}],
                         ids=lambda write: write["write_path"])
def test_a_sync_finds_small_pages_in_the_cache(tmp_path, write, prezero):
    """Left to page faults, read-ahead makes folios of up to 2 MiB, and every sync of one message writes a whole one."""
    with MessageStore.open(tmp_path / "s", flush_mode="sync", segment_prezero=prezero, segment_size_bytes=SIZE, **write) as s:
        s.put("T", b"x")
        until(lambda: cached(first_file(s)) >= AHEAD // mmap.PAGESIZE)


def test_warm_maps_them(tmp_path):
    with MessageStore.open(tmp_path / "s", segment_warm=True, segment_size_bytes=SIZE) as s:
        s.put("T", b"x")
        until(lambda: mapped(first_file(s)) >= AHEAD // 1024)


def single(file):
    """Bytes of the file's map in this process of which a fault brings one page."""
    parts = re.findall(rf"(?m)^([0-9a-f]+)-([0-9a-f]+) [^\n]* {re.escape(str(file))}\n(?:[A-Z][^\n]*\n)*?VmFlags:([^\n]*)",
                       Path("/proc/self/smaps").read_text())
    assert parts
    return sum(int(end, 16) - int(begin, 16) for begin, end, flags in parts if "rr" in flags.split())


def test_faults_of_a_writer_read_nothing_ahead(tmp_path):
    """The put that meets the mark would else pay for the reading, as much of it as the disk is set to."""
    with MessageStore.open(tmp_path / "s", segment_size_bytes=SIZE) as s:
        s.put("T", bytes(1000))
        until(lambda: single(first_file(s)) >= SIZE - (1 << 20))
        s.put("T", bytes(1 << 20))
        s.flush()
    with MessageStore.open(tmp_path / "s", segment_size_bytes=SIZE) as s:
        s.put("T", bytes(1000))                 # what was there before is read as any file
        until(lambda: SIZE - (2 << 20) < single(first_file(s)) < SIZE - (1 << 20))
        while s.max_log_offset <= SIZE:
            s.put("T", bytes(1 << 20))
        until(lambda: single(Path(s.path) / "commitlog" / f"{SIZE:020d}") > SIZE - (4 << 20))
        until(lambda: single(first_file(s)) == 0)
    with MessageStore.open(tmp_path / "sync", flush_mode="sync", segment_size_bytes=SIZE) as s:
        s.put("T", bytes(1000))                 # its pages are brought ahead
        assert single(first_file(s)) == 0


def test_faults_of_a_burst_read_ahead_until_it_ends(tmp_path):
    """One fault for 2 MiB is what puts at full speed want."""
    with MessageStore.open(tmp_path / "s", segment_size_bytes=1 << 30) as s:
        s.put("T", b"x")
        until(lambda: single(first_file(s)) > 1 << 29)
        seen, ended = threading.Event(), threading.Event()

        def burst():
            while not seen.is_set() and s.max_log_offset < 900 << 20:
                s.put("T", bytes(60_000))
            ended.set()

        thread = threading.Thread(target=burst)
        begun = time.monotonic()
        thread.start()
        fast = False
        while not fast and not ended.is_set():
            fast = single(first_file(s)) == 0
        seen.set()
        thread.join()
        if not fast and (rate := s.max_log_offset / (time.monotonic() - begun) / (1 << 20)) < 320:
            pytest.skip(f"this machine put {rate:.0f} MiB a second, which is no burst")
        assert fast
        until(lambda: single(first_file(s)) > 0)


def zeros_ahead(probe):
    """How many writes into files of the log: puts go through the map."""
    return sum(call.kind == "pwrite" and "/commitlog/" in str(call.path) for call in probe.trace())


class Stream:
    """Three threads put until zeros have gone ahead of them."""

    def __init__(self, store, probe):
        self.store, self.probe, self.count = store, probe, 0
        self.bodies = [random.Random(n).randbytes(60_000) for n in range(7)]
        until(self._ahead, 200)

    def _put(self, n):
        for i in range(50):
            self.store.put("T", self.bodies[i % 7], queue_id=n)

    def _ahead(self):
        threads = [threading.Thread(target=self._put, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.count += 50
        return zeros_ahead(self.probe) > 8


def test_zeros_go_ahead_of_a_stream_and_never_over_it(tmp_path):
    probe = ProbeIo(keep_bytes=False)
    with MessageStore.open(tmp_path / "s", write_path="mmap", segment_size_bytes=SIZE, _io=probe) as s:
        stream = Stream(s, probe)
        s.flush()
        for n in range(3):
            assert [m.body == stream.bodies[i % 50 % 7] for i, m in enumerate(s.scan("T", n))] == [True] * stream.count
    assert list(verify(tmp_path / "s")) == []


@pytest.mark.parametrize("fails", [False, True])
def test_a_store_that_is_closed_leaves_zeros_on_the_device_or_its_abort_file(tmp_path, fails):
    probe = ProbeIo(keep_bytes=False)
    store = MessageStore.open(tmp_path / "s", write_path="mmap", flush_backend="msync", segment_size_bytes=SIZE, _io=probe)
    Stream(store, probe)
    store.flush()
    if fails:
        probe.fail("fdatasync", 1, errno.EIO, path="/commitlog/", sticky=True)
        with pytest.raises(SyncFailed):
            store.close()
    else:
        store.close()
    assert [call for call in probe.trace() if call.kind == "fdatasync" and "/commitlog/" in str(call.path)]
    assert (tmp_path / "s" / "abort").exists() == fails


def test_a_store_that_gets_little_writes_none(tmp_path):
    probe = ProbeIo(keep_bytes=False)
    with MessageStore.open(tmp_path / "s", write_path="mmap", segment_size_bytes=SIZE, _io=probe) as s:
        for _ in range(100):
            s.put("T", bytes(1000))
        s.wait_dispatched()
        assert zeros_ahead(probe) == 0


def test_a_log_that_is_long_is_no_stream(tmp_path):
    """Longer than the machine is up could tell: nothing is known of how fast it grew."""
    begin = 1 << 55
    (tmp_path / "s" / "commitlog").mkdir(parents=True)
    (tmp_path / "s" / "commitlog" / f"{begin:020d}").write_bytes(bytes(SIZE))
    probe = ProbeIo(keep_bytes=False)
    with MessageStore.open(tmp_path / "s", write_path="mmap", segment_size_bytes=SIZE, _io=probe) as s:
        assert s.put("T", b"x").offset == begin
        s.wait_dispatched()
        until(lambda: single(tmp_path / "s" / "commitlog" / f"{begin:020d}") >= SIZE - (1 << 20))
    assert zeros_ahead(probe) == 0
