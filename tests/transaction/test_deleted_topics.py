"""An operator deletes a system topic, whose queue begins at offset 0 again: no transaction is taken for another one."""
import pytest

from rmq_store import MessageStore, errors

SMALL = {"segment_size_bytes": 1 << 20, "index_slots": 100, "index_entries_max": 1000}
HALF, OP, GROUP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "CID_RMQ_SYS_TRANS"
HOUR = 3_600_000


def opened(path):
    return MessageStore.open(path, transaction_check_interval_ms=HOUR, transaction_op_interval_ms=HOUR, **SMALL)


def ids(store):
    return [row.id for row in store.transactions()]


@pytest.mark.parametrize("reopen", [False, True])
def test_the_half_queue_begins_again(tmp_path, reopen):
    """Op messages settle what lay before them in the log, and a transaction of the old queue settles nothing in the new one."""
    with opened(tmp_path) as store:
        old = [store.prepare("T", b"old", group="P") for _ in range(2)]
        for _ in range(5):
            store.prepare("T", b"x", group="P").rollback()
        assert store.wait_dispatched(30)
        store.delete_topics(HALF)
        if reopen:
            store.close()
            store = opened(tmp_path)
        new = [store.prepare("T", b"%d" % i, group="P") for i in range(5)]
        assert [t.half_offset for t in new] == list(range(5))
        old[1].rollback() if not reopen else None
        assert store.wait_dispatched(30) and ids(store) == [t.id for t in new]
        new[0].commit()
        store._transactions.tend(store)
        store.close()
    with opened(tmp_path) as store:
        assert ids(store) == [t.id for t in new[1:]] and store.offsets.query(GROUP, HALF, 0) == 1
        store.transaction_by_id(new[1].id).commit()
    with opened(tmp_path) as store:
        assert ids(store) == [t.id for t in new[2:]]
        assert store.wait_dispatched(30) and [bytes(m.body) for m in store.scan("T")] == [b"0", b"1"]


def test_the_op_queue_begins_again(tmp_path):
    """What was rolled back behind it stays so."""
    with opened(tmp_path) as store:
        for _ in range(5):
            store.prepare("T", b"x", group="P").rollback()
        store._transactions.tend(store)
        assert store.wait_dispatched(30) and store.offsets.query(GROUP, OP, 0) == 5
        store.delete_topics(OP)
        kept = store.prepare("T", b"kept", group="P")
        for _ in range(7):
            store.prepare("T", b"x", group="P").rollback()
        assert store.wait_dispatched(30)
        store._transactions.tend(store)
        assert store.offsets.query(GROUP, OP, 0) == 0
    with opened(tmp_path) as store:
        assert ids(store) == [kept.id]


@pytest.mark.parametrize("told", [False, True])
def test_the_topic_of_what_was_committed_is_deleted(tmp_path, monkeypatch, told):
    """The record in the log is the decision, though no queue leads to it. told: the op message is there, too."""
    with opened(tmp_path) as store:
        before = store.prepare("T", b"pending", group="P")
        done = store.prepare("T", b"committed", group="P")
        back = store.prepare("T", b"rolled back", group="P")
        back.rollback()
        done.commit()
        assert store.wait_dispatched(30)
        store.delete_topics("T")
        store.prepare("T", b"young", group="P").commit()
        if not told:
            monkeypatch.setattr(store._transactions, "tend", lambda store: None)
    with opened(tmp_path) as store:
        assert ids(store) == [before.id]
        states = [store.transaction_by_id(t.id).state for t in (before, done, back)]
        assert states == ["pending", "committed", "rolled back"]
        with pytest.raises(errors.TransactionDecided):
            store.transaction_by_id(done.id).rollback()
        assert store.wait_dispatched(30) and [bytes(m.body) for m in store.get("T", 0, 0)] == [b"young"]
