"""The checker on traces of a few calls: it says nothing of those that keep the rules, and names the rule that one breaks."""
import errno
import os
import threading

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import Call, ProbeIo
from tests.crash import scenario
from tests.crash.states import acknowledge_early, without
from tests.trace.checker import RULES, Checker, Store
from tests.trace.files import PAGE, File
from tests.trace.recorder import Recorder, described

SEGMENT = 16384


class Small:
    """A log of one file that a probe writes, and what it tells."""

    def __init__(self, root, **probe):
        self.root = str(root)
        self.io = ProbeIo(**probe)
        self.log = f"{root}/commitlog"
        for directory in (root, self.log):
            self.io.mkdir(directory)
            self.io.sync_dir(os.path.dirname(directory))
        self.file("abort", b"1")
        self.path = f"{self.log}/{0:020d}"
        self.fd = self.io.open(self.path, os.O_RDWR | os.O_CREAT)
        self.io.fallocate(self.fd, 0, SEGMENT)
        self.io.fsync(self.fd)
        self.io.sync_dir(self.log)
        self.io.mark(("opened", Store(self.root, self.log, f"{root}/consumequeue", f"{root}/index", SEGMENT)))

    def file(self, name, data):
        fd = self.io.open(f"{self.root}/{name}", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self.io.pwrite(fd, data, 0)
        self.io.fsync(fd)
        self.io.close(fd)
        self.io.sync_dir(self.root)

    def told(self, position):
        self.io.mark(("flushed", self.root, position))

    def found(self):
        checker = Checker()
        checker.feed(self.io.trace())
        self.io.close(self.fd)
        return {finding.partition(":")[0] for finding in checker.findings}


@pytest.fixture
def small(tmp_path):
    return Small(tmp_path / "s")


def test_a_block_that_is_written_anew_before_the_open_comes_back(tmp_path):
    """Of a file that was there before the trace: a delayed message is delivered while its store opens. What was durable there
    is no news, what is new there is."""
    log = tmp_path / "s" / "commitlog"
    log.mkdir(parents=True)
    path = str(log / f"{0:020d}")
    with open(path, "wb") as file:
        file.write(b"x" * 100 + bytes(SEGMENT - 100))
    io, root = ProbeIo(), str(tmp_path / "s")
    fd = io.open(path, os.O_RDWR)
    io.pwrite(fd, b"x" * 200 + bytes(PAGE - 200), 0)
    io.mark(("opened", Store(root, str(log), f"{root}/consumequeue", f"{root}/index", SEGMENT, flushed=100)))
    checker = Checker({"durable"})
    checker.feed(io.trace())
    assert checker.findings == []
    io.mark(("flushed", root, 200))
    checker = Checker({"durable"})
    checker.feed(io.trace())
    assert len(checker.findings) == 1 and "100 to 4096 is not" in checker.findings[0]
    io.close(fd)


def test_a_write_and_its_sync(small):
    small.io.pwrite(small.fd, b"x" * 100, 0)
    small.io.fdatasync(small.fd)
    small.told(100)
    assert small.found() == set()


def test_no_sync(small):
    small.io.pwrite(small.fd, b"x" * 100, 0)
    small.told(100)
    assert small.found() == {"durable"}


def test_what_was_never_written(small):
    small.io.pwrite(small.fd, b"x" * 100, 0)
    small.io.pwrite(small.fd, bytes(1000), 100)         # zeros ahead
    small.io.fdatasync(small.fd)
    small.told(200)
    assert small.found() == {"durable"}


def test_what_was_told_counts_and_no_more(small):
    small.io.pwrite(small.fd, b"x" * 100, 0)
    small.io.fdatasync(small.fd)
    small.io.pwrite(small.fd, b"y" * 100, 100)
    small.told(100)
    assert small.found() == set()


def test_a_write_that_ends_while_the_sync_runs_is_not_covered(small):
    small.io.gate("fdatasync")
    thread = threading.Thread(target=small.io.fdatasync, args=(small.fd,))
    thread.start()
    small.io.wait_standing()
    small.io.pwrite(small.fd, b"late", 0)
    small.io.ungate()
    thread.join()
    small.told(4)
    assert small.found() == {"durable"}


def test_another_descriptor_of_the_file_syncs_it(small):
    other = small.io.open(small.path, os.O_RDWR)
    small.io.pwrite(small.fd, b"x" * 100, 0)
    small.io.fdatasync(other)
    small.told(100)
    small.io.close(other)
    assert small.found() == set()


def test_a_failed_sync_covers_nothing_and_no_later_one_does(small):
    small.io.pwrite(small.fd, b"x" * 100, 0)
    small.io.fail("fdatasync", 1, errno.EIO)
    with pytest.raises(OSError):
        small.io.fdatasync(small.fd)
    small.io.fdatasync(small.fd)
    small.told(100)
    assert small.found() == {"durable"}


def test_what_a_failed_sync_covered_is_written_again(small):
    small.io.pwrite(small.fd, b"x" * 100, 0)
    small.io.fail("fdatasync", 1, errno.EIO)
    with pytest.raises(OSError):
        small.io.fdatasync(small.fd)
    small.io.pwrite(small.fd, b"x" * 100, 0)
    small.io.fdatasync(small.fd)
    small.told(100)
    assert small.found() == set()


def test_the_same_bytes_again_are_durable_as_before(small):
    """The last block of a log is written again and again."""
    small.io.pwrite(small.fd, b"x" * 100, 0)
    small.io.fdatasync(small.fd)
    small.io.pwrite(small.fd, b"x" * 100 + b"y" * 100, 0)
    small.told(100)
    assert small.found() == set()


def test_other_bytes_in_place_of_durable_ones(small):
    small.io.pwrite(small.fd, b"x" * 100, 0)
    small.io.fdatasync(small.fd)
    small.told(100)
    small.io.pwrite(small.fd, b"z", 99)
    assert small.found() == {"changed"}


def test_zeros_in_place_of_bytes_of_which_nothing_was_told(small):
    """As a recovery leaves them where it cuts."""
    small.io.pwrite(small.fd, b"xyz", 0)
    small.io.pwrite(small.fd, bytes(3), 0)
    small.io.pwrite(small.fd, b"abc", 0)
    assert small.found() == set()


def test_other_bytes_in_place_of_what_others_may_map(small):
    small.io.pwrite(small.fd, b"xyz", 0)
    small.io.pwrite(small.fd, b"xbz", 0)
    assert small.found() == {"changed"}


@pytest.mark.parametrize(("synced", "expected"), [(8192, {"durable"}), (12288, set())])
def test_msync_covers_its_range(small, synced, expected):
    at = small.io.mmap(small.fd, 0, SEGMENT, True)
    small.io.map_store(small.fd, 0, at, b"x" * 10_000)
    small.io.msync(small.fd, at, synced)
    small.told(10_000)
    small.io.munmap(at, SEGMENT)
    assert small.found() == expected


def test_a_ring_write_that_found_no_room_has_written_nothing():
    file = File(True)
    file.write(0, b"x" * 100, 100, 1)
    file.synced(2)
    file.write(50, b"y" * 100, 100, None, 7)
    file.write_refused(7, 50, b"x" * 50 + bytes(50))
    assert file.first_dirty(0, 200) is None and file.read(0, 150) == b"x" * 100 + bytes(50)
    file.write(50, b"y" * 100, 100, None, 8)
    file.write(50, b"z" * 100, 100, None, 9)
    file.write_refused(9, 50, b"y" * 100)
    file.landed(8, 150, 10)
    assert file.first_dirty(0, 200) is not None         # which bytes are whose is not known


def test_a_ring_write_that_was_short_goes_again():
    """The device took a part. A rest that is the same bytes again is a write of its own."""
    checker = Checker()
    file = checker.open[5] = File(True)

    def call(kind, data=None, offset=0, result=0, begin=0):
        return Call(kind, 5, "/x", None, offset, len(data or b""), result, 0, begin, 0, False, data, None)

    def write(number, offset, data):
        checker._ring_write(call("ring_write", data, offset), number)

    write(1, 0, b"y" * 100)
    checker._ring_reap(call("ring_reap", begin=1, result=40), 2)
    dirty = file.first_dirty(0, 100)
    assert file.read(0, 100) == b"y" * 40 + bytes(60) and (dirty.low, dirty.high) == (0, 40)
    write(3, 40, b"y" * 60)
    assert file.first_dirty(40, 100).done is None
    checker._ring_reap(call("ring_reap", begin=3, result=60), 4)
    file.synced(5)
    assert file.first_dirty(0, 200) is None and file.read(0, 100) == b"y" * 100


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("data", [None, b"", b"y" * 100], ids=["no bytes", "refused", "bytes"])
def test_a_ring_write_that_failed_is_made_again(whole, data):
    file = File(whole)
    file.write(0, data, 100, None, 7)
    file.write_failed(7)
    file.synced(8)
    assert (data == b"" and whole) or file.first_dirty(0, 100) is not None
    file.write(0, b"y" * 100, 100, None, 9)
    assert file.first_dirty(0, 100) is not None
    file.landed(9, 100, 10)
    file.synced(11)
    assert file.first_dirty(0, 100) is None


def test_a_name_that_no_directory_sync_covers(small):
    second = small.io.open(f"{small.log}/{SEGMENT:020d}", os.O_RDWR | os.O_CREAT)
    small.io.pwrite(small.fd, b"x" * SEGMENT, 0)
    small.io.pwrite(second, b"x", 0)
    for fd in (small.fd, second):
        small.io.fdatasync(fd)
    small.io.close(second)
    small.told(SEGMENT + 1)
    assert small.found() == {"durable"}


def test_a_rename_of_what_is_not_synced(small):
    fd = small.io.open(f"{small.root}/new.tmp", os.O_RDWR | os.O_CREAT)
    small.io.pwrite(fd, b"x", 0)
    small.io.close(fd)
    small.io.rename(f"{small.root}/new.tmp", f"{small.root}/new")
    assert small.found() == {"rename"}


def test_a_file_of_the_log_is_cut_or_written_beyond_its_end(small):
    small.io.pwrite(small.fd, b"x" * 8, SEGMENT - 4)
    small.io.ftruncate(small.fd, 4096)
    assert small.found() == {"beyond", "cut"}


def test_abort_goes_before_the_log_is_durable(small):
    small.io.pwrite(small.fd, b"x", 0)
    small.io.unlink(f"{small.root}/abort")
    assert small.found() == {"abort"}


def test_the_log_changes_while_there_is_no_abort_file(small):
    small.io.unlink(f"{small.root}/abort")
    small.io.pwrite(small.fd, b"x", 0)
    assert small.found() == {"early"}


def test_a_freeze_ends_it(small):
    small.io.freeze()
    small.io.pwrite(small.fd, b"x" * 100, 0)
    small.told(100)
    assert small.found() == set()


# ---- whole stores, and what a careless one would have recorded

def recorded(root, config):
    """The trace of a store that puts, flushes, consumes and closes, one after the other; each message in a ms of its own."""
    root.mkdir()
    io = ProbeIo()
    io.set_clock(1_700_000_000_000, step=1)
    store = MessageStore.open(root, _io=io, **scenario.SMALL, **scenario.config_options(config))
    io.mark(("opened", described(store)))
    for i in range(30):
        result = scenario.message(i).put(store)
        if config[1] == "sync":
            io.mark(("acked", str(root), result.offset, result.offset + result.size))
        if i % 7 == 6:
            io.mark(("flushed", str(root), store.flush()))
    store.wait_dispatched(10)
    with store.consumer("g", "T") as consumer:
        while (batch := consumer.poll(100)) is not None:
            batch.ack()
        del batch
    store._final_checkpoint()
    store.close()
    io.mark(("closed", str(root)))
    return io.trace()


def findings(root, trace):
    checker = Checker(RULES - {"cut"}, margin_ms=0)
    checker.know(str(root), {})
    checker.feed(trace)
    return {finding.partition(":")[0] for finding in checker.findings}, checker.told


@pytest.mark.parametrize("config", scenario.CONFIGS, ids="-".join)
def test_a_store_keeps_the_rules(tmp_path, config):
    found, told = findings(tmp_path / "s", recorded(tmp_path / "s", config))
    assert not found and told >= 5


def in_log(call):
    return call.kind in ("pwrite", "map_store") and "/commitlog/" in call.path


FORGOTTEN = {
    "the log's syncs": (lambda t: without(without(t, "msync", "/commitlog/"), "fdatasync", "/commitlog/"), "durable"),
    "the log's directory": (lambda t: without(t, "sync_dir", "/commitlog"), "durable"),
    "the wait for the sync": (lambda t: acknowledge_early(t, lambda n: n[0] in ("flushed", "acked"), in_log), "durable"),
    "the queues' syncs": (lambda t: without(without(t, "fdatasync", "/consumequeue/"), "fsync", "/consumequeue/"),
                          "checkpoint"),
    "the sync of a new file of offsets": (lambda t: without(t, "fsync", "/consumerOffset.json"), "rename"),
    "the flush before the offsets": (lambda t: offsets_first(t), "offsets"),
    "the abort file": (lambda t: without(t, "open", "/abort"), "abort"),
}


def offsets_first(trace):
    """The offsets are written before the log is synced, from the last sync on."""
    last = max(i for i, c in enumerate(trace) if in_log(c) and c.data.strip(b"\0"))
    moved = [c for c in trace if "/config/" in (c.path or "")]
    return trace[:last + 1] + moved + [c for c in trace[last + 1:] if c not in moved]


@pytest.mark.parametrize("what", FORGOTTEN)
@pytest.mark.parametrize("config", [("mmap", "async", "msync"), ("pool", "sync", "fdatasync")], ids="-".join)
def test_what_a_store_forgets_is_found(tmp_path, config, what):
    broken, rule = FORGOTTEN[what]
    found, _ = findings(tmp_path / "s", broken(recorded(tmp_path / "s", config)))
    assert rule in found


# ---- what a command says

@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_command_that_puts_promises_the_device(tmp_path, rmqstore, monkeypatch, more):
    """Its end alone is told here, neither its flush nor its close."""
    (tmp_path / "lines").write_text("one\ntwo\n")
    recorder = Recorder()
    recorder.watch(monkeypatch)
    assert rmqstore("put", tmp_path / "s", tmp_path / "lines", "-t", "T", *more)[0] == 0
    trace = [c for c in recorder.table().trace() if c.kind != "mark" or c.note[0] in ("opened", "acked", "closed")]
    assert findings(tmp_path / "s", trace) == (set(), 3)
    broken = without(without(trace, "msync", "/commitlog/"), "fdatasync", "/commitlog/")
    assert "durable" in findings(tmp_path / "s", broken)[0]
