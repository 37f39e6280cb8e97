"""Deleting, listing, compacting and closing while dispatch stands, as the disk of the queues is full or the process lacks
something: deleting works, as it is the way out, and nobody waits without an end and a reason."""
import errno
import os
import shutil
import subprocess

import pytest

from rmq_store import MessageStore, errors
from rmq_store.access.core import _core
from rmq_store.base.io._io import ProbeIo
from tests.crash import scenario

WANTS = [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN]
SAID = {errno.ENOSPC: "df -i", errno.EDQUOT: "quota", errno.EMFILE: r"RLIMIT_NOFILE\): raise", errno.ENFILE: "fs.file-max",
        errno.ENOMEM: "RLIMIT_AS", errno.EAGAIN: "RLIMIT_NPROC"}
wants = pytest.mark.parametrize("code", WANTS, ids=errno.errorcode.get)


def stand(probe, code):
    """Dispatch writes no entry, and makes no queue, from now on."""
    for kind in ("pwrite", "open", "mkdir"):
        probe.fail(kind, 1, code, path="/consumequeue", sticky=True)


def bodies(store, topic="T"):
    return [bytes(m.body) for m in store.scan(topic, 0)]


@wants
def test_a_call_that_needs_dispatch_says_what_is_lacking(tmp_path, monkeypatch, code):
    monkeypatch.setattr(_core, "WANT_MAX_S", 0.1)
    probe = ProbeIo()
    with MessageStore.open(tmp_path / "s", _io=probe, **scenario.SMALL) as store:
        store.topic_table.set_cleanup_policy("C", "COMPACTION")
        store.put("T", b"0")
        assert store.wait_dispatched(30)
        stand(probe, code)
        store.put("T", b"1")
        kind = errors.DiskFull if code in errors.DiskFull.codes else errors.OutOfResources
        for call in (store.wait_dispatched, lambda: list(store.timers()), lambda: store.compact("C")):
            with pytest.raises(kind, match=f"dispatch to the queues.*{SAID[code]}.*continues by itself") as error:
                call()
            assert error.value.errno == code
        assert not store.wait_dispatched(0.01)          # who gave a time has it
        assert store.put("T", b"2").status == 0         # puts go on
        probe.clear()
        assert store.wait_dispatched(30) and bodies(store) == [b"0", b"1", b"2"] and list(store.timers()) == []


@wants
@pytest.mark.parametrize("first", [True, False], ids=["new", "known"])
def test_a_topic_is_deleted_while_its_messages_wait_for_dispatch(tmp_path, code, first):
    probe = ProbeIo()
    root = tmp_path / "s"
    with MessageStore.open(root, _io=probe, **scenario.SMALL) as store:
        store.put("Other", b"0")
        if not first:
            store.put("T", b"old", keys="old")
        assert store.wait_dispatched(30)
        stand(probe, code)
        store.put("T", b"waits", keys="waits")
        store.put("Other", b"1")
        assert not store.wait_dispatched(0.01)
        done = store.delete_topics("T")
        assert (done.removed, done.kept) == ([("T", 0)], [])
        assert store.put("T", b"new").queue_offset == 0
        shutil.copytree(root, tmp_path / "killed")      # before anything of it is dispatched
        probe.clear()
        assert store.wait_dispatched(30)
        assert bodies(store) == [b"new"] and bodies(store, "Other") == [b"0", b"1"]
    for place in (root, tmp_path / "killed"):
        with MessageStore.open(place, **scenario.SMALL) as store:
            assert bodies(store) == [b"new"] and bodies(store, "Other") == [b"0", b"1"]
            assert store.put("T", b"next").queue_offset == 1


def test_a_message_that_comes_during_the_deletion_keeps_its_queue(tmp_path, monkeypatch):
    from rmq_store.services.cleaning import removing

    probe = ProbeIo()
    with MessageStore.open(tmp_path / "s", _io=probe, **scenario.SMALL) as store:
        store.put("T", b"0")
        assert store.wait_dispatched(30)
        stand(probe, errno.ENOSPC)
        store.put("T", b"1")
        save = removing._save

        def late(*args):
            monkeypatch.setattr(removing, "_save", save)
            save(*args)
            store.put("T", b"2")

        monkeypatch.setattr(removing, "_save", late)
        done = store.delete_topics("T")
        assert (done.removed, done.kept) == ([], [("T", 0)])
        probe.clear()
        assert store.wait_dispatched(30) and bodies(store) == [b"0", b"1", b"2"]
    with MessageStore.open(tmp_path / "s", **scenario.SMALL) as store:
        assert bodies(store) == [b"0", b"1", b"2"]


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
@pytest.mark.parametrize("lack", ["bytes", "inodes"])
def test_deleting_makes_room_on_a_full_disk(tmp_path, lack):
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=60", "none", str(place)]).returncode:
        pytest.skip("no tmpfs can be mounted")
    try:
        with MessageStore.open(place / "s", segment_size_bytes=1 << 16, consumequeue_file_size_bytes=20 * 4096,
                               index_enabled=False, message_size_max_bytes=4096) as store:
            store.put("Other", b"0")
            for i in range(600):
                store.put("Old", b"%d" % i, queue_id=i % 3)
            assert store.wait_dispatched(30)
            fill(place, lack)
            store.put("New", b"1")                      # its queue cannot be made
            assert not store.wait_dispatched(0.2)
            done = store.delete_topics("Old")
            assert len(done.removed) == 3
            assert store.wait_dispatched(30)            # there is room for it now
            assert bodies(store, "New") == [b"1"] and bodies(store, "Other") == [b"0"]
            assert store.put("Old", b"again").queue_offset == 0
            os.unlink(place / "ballast" if lack == "bytes" else place / "empty0")
        with MessageStore.open(place / "s", segment_size_bytes=1 << 16, consumequeue_file_size_bytes=20 * 4096,
                               index_enabled=False, message_size_max_bytes=4096) as store:
            assert bodies(store, "Old") == [b"again"] and bodies(store, "New") == [b"1"]
    finally:
        subprocess.run(["umount", str(place)], check=True)


def fill(place, lack):
    try:
        for i in range(1000):
            with open(place / ("ballast" if lack == "bytes" else f"empty{i}"), "ab", buffering=0) as file:
                while lack == "bytes":
                    file.write(bytes(4096))
    except OSError as error:
        assert error.errno == errno.ENOSPC
