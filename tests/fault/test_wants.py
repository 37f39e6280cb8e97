"""What the checkpoint and a deletion lack for a while: no fence, and they continue by themselves. A sync that fails is one."""
import errno
import time

import pytest

from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from tests.crash import scenario

OPEN_WANTS = [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN]
OFTEN = {"consumequeue_flush_interval_ms": 10, "consumequeue_flush_interval_max_ms": 20, "consumequeue_flush_pages_min": 0}
PATIENCE_S = 30


def until(condition):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize(("kind", "path", "code"), [
    *(("open", "/consumequeue/", code) for code in OPEN_WANTS),
    ("sync_dir", "/consumequeue", errno.EMFILE), ("sync_dir", "/consumequeue", errno.ENFILE),
    *(("pwrite", "/checkpoint", code) for code in (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM))],
    ids=lambda value: errno.errorcode.get(value, value))
def test_the_checkpoint_waits_for_what_it_lacks(tmp_path, kind, path, code):
    probe = ProbeIo()
    options = {**scenario.SMALL, "consumequeue_fd_max": 2, **OFTEN}
    with MessageStore.open(tmp_path / "s", _io=probe, **options) as store:
        for queue_id in range(8):
            store.put("T", b"0", queue_id=queue_id)
        assert store.wait_dispatched(30)
        probe.fail(kind, 1, code, path=path, sticky=True)
        for queue_id in range(8):
            store.put("T", b"1", queue_id=queue_id)
            store.put("New", b"1", queue_id=queue_id)
        until(lambda: probe.hits >= 3)                  # it is tried again
        assert store.stats()["errno"] == 0 and store.put("T", b"2").status == 0
        probe.clear()
        assert store.wait_dispatched(30) and store.flush() > 0
        assert [bytes(m.body) for m in store.scan("T", 7)] == [b"0", b"1"]
    with MessageStore.open(tmp_path / "s", **options) as store:
        assert not store.stats()["recovered"] and store.max_offset("New", 7) == 1


@pytest.mark.parametrize(("kind", "path"), [("fdatasync", "/consumequeue/"), ("sync_dir", "/consumequeue"),
                                            ("fdatasync", "/checkpoint")])
def test_a_sync_that_says_that_the_disk_is_full_has_failed(tmp_path, kind, path):
    probe = ProbeIo()
    with pytest.raises(errors.DurabilityError) as error, \
            MessageStore.open(tmp_path / "s", _io=probe, **{**scenario.SMALL, **OFTEN}) as store:
        store.put("T", b"0")
        assert store.wait_dispatched(30)
        probe.fail(kind, 1, errno.ENOSPC, path=path)
        for n in range(40):
            store.put(f"T{n}", b"1")
            if store.stats()["errno"]:
                break
            until(lambda: store.stats()["errno"] or store.stats()["dispatch_behind_bytes"] == 0)
        until(lambda: store.stats()["errno"])
        store.put("T", b"2")
    assert error.value.errno == errno.ENOSPC


@pytest.mark.parametrize(("kind", "code"), [("sync_dir", errno.EMFILE), ("unlink", errno.ENOMEM), ("unlink", errno.ENOSPC)],
                         ids=["EMFILE", "ENOMEM", "ENOSPC"])
def test_a_deletion_waits_for_what_it_lacks(tmp_path, kind, code):
    probe = ProbeIo()
    with MessageStore.open(tmp_path / "s", _io=probe, **scenario.SMALL) as store:
        store.put("T", b"0")
        assert store.wait_dispatched(30)
        for nth in (1, 2):
            probe.fail(kind, nth, code, path="/consumequeue/T")
        assert store.delete_topics("T").removed == [("T", 0)] and probe.hits > 0
        assert store.put("T", b"1").queue_offset == 0 and store.wait_dispatched(30)
        assert [bytes(m.body) for m in store.scan("T", 0)] == [b"1"]
    with MessageStore.open(tmp_path / "s", **scenario.SMALL) as store:
        assert [bytes(m.body) for m in store.scan("T", 0)] == [b"1"] and not store.stats()["recovered"]
