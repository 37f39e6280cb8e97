"""What a put that waits for a slave does not wait for: dispatch, on either side, and the HA thread."""
from pathlib import Path

from rmq_store.base.io._io import ProbeIo
from rmq_store.status import PutStatus
from tests.replication.pairs import caught_up, joined, master, same_log, same_queues, slave
from tests.waiting.test_dispatch_here import native_threads, reader, sleeps

SYNC = {"role": "sync_master", "slave_timeout_ms": 20_000}
QUEUES = "/consumequeue/"


def test_a_put_waits_for_no_dispatch(tmp_path: Path) -> None:
    """Both sides stand still in front of their queues."""
    of_master, of_slave = ProbeIo(keep_bytes=False), ProbeIo(keep_bytes=False)
    with master(tmp_path / "m", _io=of_master, **SYNC) as m, slave(tmp_path / "s", m, _io=of_slave) as s:
        joined(m)
        m.put("T", b"first", queue_id=0)
        caught_up(s, m)
        for probe, store in ((of_master, m), (of_slave, s)):
            assert store.wait_dispatched(30)
            probe.gate("pwrite", QUEUES)
        try:
            for _ in range(20):
                assert m.put("T", b"x", queue_id=0).status == PutStatus.PUT_OK
            assert m.put_async("T", b"x", queue_id=0).result().status == PutStatus.PUT_OK
            assert s.max_log_offset == m.max_log_offset
            assert m.max_offset("T", 0) == s.max_offset("T", 0) == 1
        finally:
            of_master.ungate()
            of_slave.ungate()
        assert m.wait_dispatched(30)
        caught_up(s, m)
        same_queues(m, s)


def test_a_slave_acknowledges_before_it_dispatches(tmp_path: Path) -> None:
    """Also where its own thread dispatches, as a reader of the slave sleeps."""
    probe = ProbeIo(keep_bytes=False)
    with master(tmp_path / "m", **SYNC) as m, slave(tmp_path / "s", m, _io=probe) as s:
        joined(m)
        m.put("T", b"first", queue_id=0)
        caught_up(s, m)
        thread, out = reader(lambda: s.get("T", 0, 1, 1, wait=60))
        for task in native_threads("rmq-dispatch"):
            sleeps(task)
        probe.gate("pwrite", QUEUES)
        try:
            assert m.put("T", b"x", queue_id=0).status == PutStatus.PUT_OK
            assert s.max_offset("T", 0) == 1
        finally:
            probe.ungate()
        thread.join()
        assert bytes(out[0][0].body) == b"x"
        same_log(m, s)
