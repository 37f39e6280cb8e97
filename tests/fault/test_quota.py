"""A real quota: a subvolume of a btrfs on a loop device, with a limit that binds root too. Needs root.

This file system copies on write, and its limit holds for what a write into reserved space needs besides: so it refuses both,
the next file and a write.
"""
import errno
import os
import shutil
import subprocess
import threading

import pytest

from rmq_store.errors import CreateMappedFileFailed, DiskFull, SyncFailed
from rmq_store.status import PutStatus
from tests.crash import scenario
from tests.mounts import loop_mount, opened, run
from tests.soon import until

MIB = 1 << 20
# Not through a map: there a page that the quota refuses is a SIGBUS (doctor tells of copy-on-write).
CONFIGS = [("pool", "async", "fdatasync"), ("pool", "sync", "fdatasync")]
if scenario.RING_HERE:
    CONFIGS += [("pool", "async", "io_uring"), ("pool", "sync", "io_uring")]
configs = pytest.mark.parametrize("config", CONFIGS, ids="-".join)
root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts and quotas need root")


class Quota:
    """The limit of one subvolume; bytes. It is set through the file system's root: one that is exceeded refuses also that."""

    def __init__(self, top, part):
        self.top, self.part = str(top), str(part)
        self.group = "0/" + run("btrfs", "inspect-internal", "rootid", self.part)

    def used(self):
        """What it refers to, all of it on the device."""
        return int(run("btrfs", "qgroup", "show", "--raw", "--sync", "-f", self.part).splitlines()[-1].split()[1])

    def limit(self, size):
        """None: no limit."""
        subprocess.run(["btrfs", "qgroup", "limit", "none" if size is None else str(size), self.group, self.top], check=True,
                       capture_output=True)


@pytest.fixture
def limited(tmp_path):
    """(directory, Quota) on a mounted btrfs of 256 MiB."""
    if shutil.which("btrfs") is None:
        pytest.skip("no btrfs")
    with loop_mount(tmp_path, 256 * MIB, ("mkfs.btrfs", "-q", "-f")) as (place, _):
        run("btrfs", "quota", "enable", str(place))
        run("btrfs", "subvolume", "create", str(place / "part"))
        yield place / "part", Quota(place, place / "part")


def body(i):
    return b"%05d" % i * 8000


@pytest.mark.root
@root
@configs
def test_the_next_file_is_refused_and_heals(limited, config):
    place, quota = limited
    sent = []
    with opened(place, config) as store:
        def fill():
            while True:
                store.put("T", body(len(sent)), queue_id=0)
                sent.append(body(len(sent)))

        store.put("T", body(0), queue_id=0)
        sent.append(body(0))
        store.flush()
        assert store.wait_dispatched(30)
        quota.limit(quota.used() + 4 * MIB - 100_000)       # what is left behind the last file is nearly a file
        refusals = []
        for _ in range(3):
            with pytest.raises((DiskFull, CreateMappedFileFailed)) as refused:
                fill()
            refusals.append(refused.value)
        assert {e.errno for e in refusals if isinstance(e, DiskFull)} == {errno.EDQUOT}
        assert store.stats()["errno"] == 0                  # no fence
        quota.limit(None)
        pause = threading.Event()
        for _ in range(2000):                               # by itself: only puts, no other call
            try:
                store.put("T", body(len(sent)), queue_id=0)
                break
            except (DiskFull, CreateMappedFileFailed):
                pause.wait(0.01)
        sent.append(body(len(sent)))
        store.flush()
        assert store.wait_dispatched(30)
        assert [bytes(m.body) for m in store.scan("T", 0)] == sent
    with opened(place, config) as store:
        assert [bytes(m.body) for m in store.scan("T", 0)] == sent and len(sent) > 30


@pytest.mark.root
@root
@configs
def test_a_quota_below_what_is_used_loses_nothing_durable(limited, config):
    """A write that the quota refuses waits in the pool and heals; where the file system refuses the sync, it is a fence."""
    place, quota = limited
    sent = [body(i) for i in range(10)]
    store = opened(place, config, flush_deadline_ms=200)
    for one in sent:
        store.put("T", one, queue_id=0)
    store.flush()
    assert store.wait_dispatched(30)
    quota.limit(MIB // 2)
    try:
        for i in range(10, 14):
            assert store.put("T", body(i), queue_id=0, wait=True).status is PutStatus.FLUSH_DISK_TIMEOUT
            sent.append(body(i))
        with pytest.raises(DiskFull) as full:
            store.flush()
        assert full.value.errno == errno.EDQUOT and store.stats()["errno"] == 0
        quota.limit(None)
        until(lambda: store.put("T", b"again", wait=True).status is PutStatus.PUT_OK, looks=1000)
        store.close()
    except SyncFailed as error:
        assert error.errno == errno.EDQUOT and store.stats()["errno"] == errno.EDQUOT
        with pytest.raises(SyncFailed):
            store.close()
        quota.limit(None)
    with opened(place, config) as store:
        there = [bytes(m.body) for m in store.scan("T", 0)]
        assert there[:10] == sent[:10] and there[:len(sent)] == sent[:len(there)]
        assert store.put("T", b"again", wait=True).status == 0
