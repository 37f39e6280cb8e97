"""Every system call of a small life fails once, one after the other, in several ways (SQLite's loop): for N = 1, 2, ... until
the N-th call of a kind no longer happens. Whatever fails: a typed error, no hang, and nothing acknowledged is lost, neither at
the next open nor, where a sync failed, in a power cut.
"""
import errno
import os
import random

import pytest

from rmq_store.base.io._io import ProbeIo
from rmq_store.errors import CreateMappedFileFailed, DiskFull, DurabilityError
from tests.crash import scenario
from tests.crash.disk import Disk
from tests.crash.states import Scratch
from tests.fault.live import Live, judge

CONFIGS = scenario.CONFIGS
configs = pytest.mark.parametrize("config", CONFIGS, ids="-".join)
# Each write path and kind of back end meets each error; the others meet one.
QUICK = [("mmap", "async", "msync"), ("pool", "sync", "fdatasync"), ("pool", "async", "io_uring")]
errors_met = pytest.mark.parametrize(("config", "code"), [
    pytest.param(config, code, id="-".join([*config, errno.errorcode[code]]),
                 marks=[] if code == errno.EIO or config in QUICK else pytest.mark.slow)
    for config in CONFIGS for code in (errno.EIO, errno.ENOSPC, errno.EINTR)])

CHANGES = ["pwrite", "fallocate", "ftruncate", "rename", "unlink", "mkdir", "open", "mmap", "ring_write"]
SYNCS = ["fdatasync", "fsync", "msync", "sync_dir", "ring_sync"]
READS = ["pread", "size", "lock", "munmap", "close", "direct_align", "ring_setup", "ring_buffers", "ring_files", "ring_file",
         "ring_submit", "ring_reap"]


def lives(tmp_path, config, kind, step=1, **fault):
    """One life for each N, or each `step`-th one: (N, life)."""
    with Scratch(tmp_path) as scratch:
        n = 1 - step
        while True:
            n += step
            probe = ProbeIo()
            probe.fail(kind, n, **fault)
            live = Live(scratch.write({}), config, probe)
            live.run()
            if probe.hits == 0:
                return
            assert n < 1000
            yield n, live


def check(live, n, kind, code):
    where = f"{kind} {n} failed with {errno.errorcode.get(code, code)}"
    assert not live.wrong_errors(code), f"{where}: {live.wrong_errors(code)}"
    wrong = live.judge(live.root)
    assert wrong is None, f"{where}: {wrong}; errors {live.errors}"


@errors_met
@pytest.mark.parametrize("kind", CHANGES)
def test_every_change_fails_once(tmp_path, config, code, kind):
    for n, live in lives(tmp_path, config, kind, errno=code):
        check(live, n, kind, code)
        if kind == "pwrite" and code == errno.EINTR:
            assert not live.errors      # nothing was written yet: repeated, unseen


@configs
def test_every_write_falls_short_once(tmp_path, config):
    for n, live in lives(tmp_path, config, "pwrite", short=True):
        assert not live.errors, f"write {n}: {live.errors}"
        assert live.judge(live.root) is None


@configs
@pytest.mark.parametrize("kind", READS)
def test_every_read_and_the_rest_fails_once(tmp_path, config, kind):
    for n, live in lives(tmp_path, config, kind, errno=errno.EIO):
        check(live, n, kind, errno.EIO)


def power_cuts(live, scratch, rnd):
    """States at the end of a life, judged: nothing that is durable may be missing."""
    disk, sent, state = Disk(live.root), [], []
    for call in live.probe.trace():
        disk.feed(call)
        if call.kind == "mark":
            if call.note[0] == "sent":
                sent = call.note[1]
            else:
                state = call.note[1]
    for image in disk.states(4, rnd):
        wrong = judge(scratch.write(image), sent, state, {"durable"})
        if wrong:
            return wrong
    return None


@errors_met
@pytest.mark.parametrize("kind", SYNCS)
def test_every_sync_fails_once(tmp_path, config, code, kind):
    """The kernel drops what it could not write and reports it once: a second sync that succeeds proves nothing."""
    rnd = random.Random(int(os.environ.get("RMQ_SEED", "1")))
    with Scratch(tmp_path) as scratch:
        for n, live in lives(tmp_path, config, kind, errno=code):
            wrong = power_cuts(live, scratch, rnd)
            assert wrong is None, f"{kind} {n} failed, then the power: {wrong}; errors {live.errors}"
            check(live, n, kind, code)


@configs
def test_nothing_is_acknowledged_after_a_failed_sync_of_the_log(tmp_path, config):
    """The fence: later puts and flushes get the errno, until the store is opened again."""

    kinds = scenario.durable_call(config)
    error = "WriteFailed" if "write" in kinds else "SyncFailed"

    def syncs(probe):
        return sum(call.kind in kinds.split("|") and "/commitlog/" in (call.path or "") for call in probe.trace())

    def steps(live):
        live.put()
        live.flush()
        assert live.store.wait_dispatched(10) and not live.errors
        live.probe.fail(kinds, 1, errno.EIO, path="/commitlog/")
        live.put()
        live.flush()
        before = syncs(live.probe)
        for _ in range(3):
            live.put()
            live.flush()
        assert [type(e).__name__ for _, e in live.errors[-6:]] == [error] * 6, live.errors
        assert syncs(live.probe) == before                              # never tried again
        assert [m.queue_offset for m in live.store.get("T", 0, 0)][:1] == [0]       # reads go on

    live = Live(str(tmp_path / "s"), config, ProbeIo())
    live.run(steps)
    assert live.state[0] == "durable" and "durable" not in live.state[1:] and "acked" not in live.state[2:]
    assert live.errors and all(isinstance(e, DurabilityError) for _, e in live.errors), live.errors
    assert (tmp_path / "s/abort").exists()
    assert live.judge(live.root) is None


@configs
def test_a_full_disk_is_no_fence(tmp_path, config):
    """No space for the next file: puts are refused until there is, what is there can be read, and nothing is lost."""
    def steps(live):
        live.probe.fail("fallocate", 1, errno.ENOSPC, path="/.alloc/0", sticky=True)
        for _ in range(8):
            live.put(6000)
        refused = [e for name, e in live.errors if name == "put"]
        assert refused and all(isinstance(e, (DiskFull, CreateMappedFileFailed)) for e in refused), live.errors
        assert isinstance(refused[0], DiskFull) and refused[0].errno == errno.ENOSPC
        live.probe.clear()
        before = len(live.errors)
        live.put(6000)
        live.put(6000)
        assert len(live.errors) == before, live.errors
        live.flush()

    live = Live(str(tmp_path / "s"), config, ProbeIo())
    live.run(steps)
    assert live.state[-2:] == ["durable", "durable"]
    assert live.judge(live.root) is None


@configs
@pytest.mark.parametrize("code", [errno.EIO, pytest.param(errno.EROFS, marks=pytest.mark.slow),
                                  pytest.param(errno.ENOSPC, marks=pytest.mark.slow)], ids=errno.errorcode.get)
@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_from_some_call_on_everything_fails(tmp_path, config, code, step):
    """A device that is gone: every change and every sync from the N-th on. close() comes back, and the lock is free."""
    for n, live in lives(tmp_path, config, "mutate|sync", step, errno=code, sticky=True):
        check(live, n, "every change from", code)


@pytest.mark.parametrize("config", [c for c in CONFIGS if "io_uring" in c[2]], ids="-".join)
@pytest.mark.parametrize("kind", ["ring_submit", "ring_reap"])
@pytest.mark.parametrize("code", [errno.EAGAIN, errno.EBUSY, errno.EINTR], ids=errno.errorcode.get)
def test_a_busy_ring_is_asked_again(tmp_path, config, kind, code):
    """No memory for a request just now, completions to be taken first, a signal: nothing was done yet, and nothing is lost."""
    for n, live in lives(tmp_path, config, kind, errno=code):
        if kind == "ring_submit" or code != errno.EBUSY:
            assert not live.errors, f"{kind} {n}: {live.errors}"
        check(live, n, kind, code)
