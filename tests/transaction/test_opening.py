"""The first calls after an open: what an earlier process committed without an op message is found, and only where it is asked
for; and a look that waits for dispatch ends."""
import errno

import pytest

from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from rmq_store.services.transaction import service, table
from rmq_store.services.transaction.transaction import Transaction
from tests.soon import until

SMALL = {"segment_size_bytes": 1 << 20, "consumequeue_file_size_bytes": 2000, "index_slots": 100, "index_entries_max": 5000,
         "transaction_check_interval_ms": 3_600_000, "transaction_op_interval_ms": 3_600_000}


@pytest.fixture
def looked(monkeypatch):
    """(topic, queue offset) of each reading of a queue."""
    seen = []
    reading = table.messages_of

    def reads(store, topic, queue_id, begin):
        seen.append(topic)
        return reading(store, topic, queue_id, begin)

    monkeypatch.setattr(table, "messages_of", reads)
    return seen


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A store with two transactions of earlier processes and a real queue that grew since. "done" is committed, and nothing but
    its real record says so."""
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        store.prepare("T", b"open", group="P", properties={"UNIQ_KEY": "open"})
        done = store.prepare("T", b"done", group="P", properties={"UNIQ_KEY": "done"})
        for i in range(300):
            store.put("T", b"%d" % i)
        with monkeypatch.context() as patch:
            patch.setattr(store._transactions, "_settle", lambda *_, **__: None)
            patch.setattr(store._transactions, "end_all", lambda store: None)
            done.commit()
            store.close()
    return tmp_path / "s"


def counted(store):
    store.wait_dispatched(30)
    found = [bytes(m.body) for m in store.scan("T")]
    return found.count(b"done"), found.count(b"open"), found.count(b"new")


def test_the_first_prepare_reads_no_real_queue(root, looked):
    with MessageStore.open(root, **SMALL) as store:
        new = store.prepare("T", b"new", group="P")
        new.commit()
        assert "T" not in looked and "RMQ_SYS_TRANS_HALF_TOPIC" in looked
        assert counted(store) == (1, 0, 1)
        assert [p.id for p in store.transactions()] == ["open"] and looked.count("T") == 1
        assert [p.id for p in store.transactions()] == ["open"] and looked.count("T") == 1, "once is enough"
    with MessageStore.open(root, **SMALL) as store:
        assert [p.id for p in store.transactions()] == ["open"]
        assert store.transaction_by_id("done").state == "committed" and counted(store) == (1, 0, 1)


@pytest.mark.parametrize("how", ["by id", "prepared again", "by place", "tended"])
def test_a_commit_of_before_is_visible_once(root, how):
    with MessageStore.open(root, readonly=True) as store:
        place = next(m for m in store.scan("RMQ_SYS_TRANS_HALF_TOPIC") if m.properties["UNIQ_KEY"] == "done")
        at, queue_offset = place.offset, place.queue_offset
        del place
    with MessageStore.open(root, **SMALL) as store:
        if how == "tended":
            store._transactions.tend(store)
            assert [half.id for half in store._transactions._table(store).pending()] == ["open"]
            return
        if how == "by id":
            transaction = store.transaction_by_id("done")
        elif how == "prepared again":       # it is another transaction of that id
            transaction = store.prepare("T", b"new", group="P", properties={"UNIQ_KEY": "done"})
            assert transaction.state == "pending"
            transaction.rollback()
            assert counted(store) == (1, 0, 0)
            return
        else:
            transaction = Transaction(store, store._transactions, store._transactions.at(store, at, queue_offset, "P"))
        assert transaction.state == "committed"
        transaction.commit()
        with pytest.raises(errors.TransactionDecided):
            transaction.rollback()
        assert counted(store) == (1, 0, 0)
        store.transaction_by_id("open").commit()
        assert counted(store) == (1, 1, 0)
    with MessageStore.open(root, **SMALL) as store:
        assert store.transactions() == [] and counted(store) == (1, 1, 0)


def test_a_look_that_finds_dispatch_standing_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(service, "LOOK_MS", 50)
    probe = ProbeIo(keep_bytes=False)
    with MessageStore.open(tmp_path / "s", _io=probe, **SMALL) as store:
        pending = store.prepare("T", b"1", group="P")
        assert store.wait_dispatched(30)
        probe.fail("pwrite", 1, errno.ENOSPC, path="/consumequeue/", sticky=True)
        store.put("T", b"2")
        until(lambda: probe.hits)
        with pytest.raises(errors.DiskFull, match=r"dispatch to the queues and the index .* make room"):
            store.transaction_by_id("nobody")
        assert pending.state == "pending"
        probe.clear()
        assert store.wait_dispatched(30)
        with pytest.raises(errors.TransactionUnknown):
            store.transaction_by_id("nobody")
        pending.commit()
