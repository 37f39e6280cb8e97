"""Stores that a broker has left: golden ones with raw transaction flags, and half queues as its code leaves them."""
import os

import pytest

from rmq_store import MessageStore, errors
from tests.soon import until

SMALL = {"segment_size_bytes": 1 << 20, "index_slots": 100, "index_entries_max": 1000}
HALF, OP, GROUP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "CID_RMQ_SYS_TRANS"


def visible(store):
    return {m.offset for topic in store.topics() for queue_id in store.queues(topic) for m in store.scan(topic, queue_id)}


@pytest.mark.parametrize("name", ["v4-delaytx", "v5-delaytx"])
def test_golden_stores(golden, name):
    """Their prepared and rolled back records are the store's own kind, which no broker's check ever sees: neither pending, nor
    visible, before and after this library prepares a transaction of its own."""
    case = golden(name)
    unseen = {row["phyOffset"] for row in case.expected() if row["t"] == "log" and row["kind"] == "unqueued"}
    committed = {row["phyOffset"] for row in case.expected() if row["t"] == "msg" and row["sysFlag"] == 8}
    topic = next(row["topic"] for row in case.expected() if row["t"] == "msg" and row["sysFlag"] == 8)
    with MessageStore.open(case.store, compat=case.compat, delay="store_only", **case.config) as store:
        assert store.transactions() == [] and unseen and committed
        before = visible(store)
        assert committed <= before and not unseen & before
        own = store.prepare(topic, b"mine", group="P")
        store.prepare(topic, b"not mine", group="P").rollback()
    with MessageStore.open(case.store, compat=case.compat, delay="store_only", **case.config) as store:
        assert [p.id for p in store.transactions()] == [own.id]
        real = store.transaction_by_id(own.id).commit().offset
        assert store.wait_dispatched(30) and store.transactions() == []
        after = visible(store)
        assert before < after and real in after and not unseen & after


def broker_half(store, name, **more):
    """What TransactionalMessageBridge puts."""
    return store.put(HALF, name.encode(), properties={
        "UNIQ_KEY": name, "PGROUP": "P", "TRAN_MSG": "true", "REAL_TOPIC": "T", "REAL_QID": "1"} | more)


def op(store, body):
    store.put(OP, body, properties={"WAIT": "true", "TAGS": "d"})


@pytest.mark.parametrize("compat", ["4.9", "5.x"])
def test_a_half_queue_of_a_broker(tmp_path, compat):
    with MessageStore.open(tmp_path, compat=compat, **SMALL) as store:
        for name in ("settled", "rolled", "open", "checked", "committed", "again"):
            broker_half(store, name)
        for body in ([b"1", b"4"] if compat == "4.9" else [b"1,4,"]):
            op(store, body)
        op(store, b"no number")
        broker_half(store, "checked", TRANSACTION_CHECK_TIMES="1")      # killed before the offset of the first was written
        place = broker_half(store, "again", TRANSACTION_CHECK_TIMES="2").offset
        store.put("T", b"again", queue_id=1, sys_flag=8, prepared_transaction_offset=place, properties={"UNIQ_KEY": "again"})
        store.put("T", b"a flag of somebody", queue_id=1, sys_flag=8, prepared_transaction_offset=place,
                  properties={"UNIQ_KEY": "other"})
        store.put(HALF, b"nobody's", properties={"UNIQ_KEY": "odd"})
        store.offsets.commit(GROUP, HALF, 0, 1)
        store.offsets.commit(GROUP, OP, 0, 0)
    with MessageStore.open(tmp_path, compat=compat, readonly=True) as store:
        assert [(p.id, p.checks) for p in store.transactions()] == [("open", 0), ("checked", 1)]
    with MessageStore.open(tmp_path, compat=compat) as store:
        assert [(p.id, p.checks) for p in store.transactions()] == [("open", 0), ("checked", 1)]
        assert store.transaction_by_id("again").state == "committed"
        checked = store.transaction_by_id("checked")
        checked.commit()
        store.transaction_by_id("open").rollback()
        store._transactions.tend(store)
        assert store.wait_dispatched(30)
        assert store.offsets.query(GROUP, HALF, 0) == store.max_offset(HALF, 0) == 9
        assert store.offsets.query(GROUP, OP, 0) == store.max_offset(OP, 0)
        assert [bytes(m.body) for m in store.scan("T", 1)] == [b"again", b"a flag of somebody", b"checked"]
        for name in ("settled", "rolled"):
            assert store.transaction_by_id(name).state == "rolled back"
    settled = set()
    with MessageStore.open(tmp_path, readonly=True) as store:
        for message in store.scan(OP):
            settled |= {int(part) for part in bytes(message.body).split(b",") if part.isdigit()}
    assert settled == {1, 2, 3, 4, 5, 6, 7}


def test_what_cleaning_has_deleted_is_gone(tmp_path):
    options = {"segment_size_bytes": 1 << 14, "index_enabled": False, "consumequeue_file_size_bytes": 200}
    with MessageStore.open(tmp_path, **options) as store:
        old = store.prepare("T", b"old", group="P")
        for _ in range(20):
            store.put("X", bytes(4000))
        young = store.prepare("T", b"young", group="P")
        assert store.wait_dispatched(30)
        store.flush()
        store.clean(0)
        assert store.min_log_offset > 0
        with pytest.raises(errors.TransactionUnknown, match="deleted"):
            old.commit()
        assert [p.id for p in store.transactions()] == [young.id]
        store._transactions.tend(store)
        assert store.offsets.query(GROUP, HALF, 0) == 1
        young.commit()
        store._transactions.tend(store)
        for _ in range(8):
            store.put("X", bytes(4000))
        store.flush()
        assert store.wait_dispatched(30)
        store.clean(0)
        assert store.max_offset(HALF, 0) == 2 and "T" in {topic for topic, _ in store.clean_expired_queues().removed}
        with store.transaction("T", b"younger", group="P") as last:
            assert last.half_offset == 2        # its queue goes on
        assert store.wait_dispatched(30) and [bytes(m.body) for m in store.scan("T")] == [b"younger"]


def test_what_was_rolled_back_stays_so_when_cleaning_deletes_an_older_half_message(tmp_path):
    """Cleaning settles the old half message, and all behind it are settled: the position of the half queue is the queue's end
    then, not its begin."""
    options = {"segment_size_bytes": 1 << 16, "index_enabled": False}
    with MessageStore.open(tmp_path, **options) as store:
        store.prepare("T", b"old, which nobody decides", group="other")
        for _ in range(20):
            store.put("X", bytes(4000))
        for _ in range(5):
            store.prepare("T", b"rolled back", group="P").rollback()
        for _ in range(20):
            store.put("X", bytes(4000))
        store.flush()
        assert store.wait_dispatched(30) and len(store.transactions()) == 1
        assert store.clean(0, files_max=1).log_files == 1 and store.min_offset(HALF, 0) == 1
        assert store.transactions() == []
        store._transactions.tend(store)
        assert [store.offsets.query(GROUP, topic, 0) for topic in (HALF, OP)] == [6, 5]
        kept = store.prepare("T", b"kept", group="P")
    with MessageStore.open(tmp_path, **options) as store:
        assert [row.id for row in store.transactions()] == [kept.id]
        store.transaction_by_id(kept.id).commit()
        assert store.wait_dispatched(30) and [bytes(m.body) for m in store.scan("T")] == [b"kept"]


@pytest.mark.parametrize("instead", ["nothing", "fifo", "link", "directory"])
@pytest.mark.parametrize("size", [200, 2000])
def test_what_was_rolled_back_stays_so_without_the_first_file_of_the_op_queue(tmp_path, caplog, size, instead):
    """After a clean close no entry is looked at. A queue that begins with a later file looks like one that was cleaned, and one
    without a file like a new one."""
    options = {**SMALL, "consumequeue_file_size_bytes": size, "compat": "4.9"}
    with MessageStore.open(tmp_path, **options) as store:
        kept = store.prepare("T", b"kept", group="P")
        for i in range(14):
            transaction = store.prepare("T", b"rolled back", group="P")
            transaction.rollback() if i % 3 else transaction.commit()
        store.put("X", b"the newest message has its entry")
    first = tmp_path / "consumequeue" / OP / "0" / f"{0:020d}"
    assert (first.parent / f"{200:020d}").exists() == (size == 200)
    first.unlink()
    if instead == "fifo":
        os.mkfifo(first)
    elif instead == "link":
        first.symlink_to("/nonexistent")
    elif instead == "directory":
        first.mkdir()
    for _ in range(2):      # as long as the queue is not repaired
        with MessageStore.open(tmp_path, **options) as store:
            assert [row.id for row in store.transactions()] == [kept.id]
    assert f"lacks its first entries: the store read {10 if size == 200 else 14} op messages" in caplog.text


def test_a_reader_that_follows_sees_what_is_decided(tmp_path):
    with MessageStore.open(tmp_path, **SMALL) as store:
        first, second = (store.prepare("T", b"%d" % i, group="P") for i in range(2))
        assert store.wait_dispatched(30)
        with MessageStore.open(tmp_path, readonly=True, follow=True) as reader:
            until(lambda: [row.id for row in reader.transactions()] == [first.id, second.id])
            first.rollback()
            second.commit()
            until(lambda: reader.transactions() == [])
            until(lambda: reader.transaction_by_id(second.id).state == "committed")
            assert reader.transaction_by_id(first.id).state == "rolled back"


def test_a_half_message_that_is_not_dispatched_yet_is_pending(tmp_path):
    """A broker's end of a transaction, at once behind the put of another thread."""
    with MessageStore.open(tmp_path, **SMALL) as store:
        for i in range(20):
            result = broker_half(store, f"U{i}")
            assert store._transactions.at(store, result.offset, i, "P").state == "pending"


def settled_for_a_broker(store):
    """TransactionalMessageServiceImpl: what an op message names, of tag d, and nothing else is looked at."""
    return sorted(int(part) for m in store.scan(OP) if m.tags == "d" for part in bytes(m.body).split(b",") if part)


def checked_behind_another(store):
    """A, of a group that nobody asks, then B, which is put again: its first half message is at 1, its newest at 2."""
    first = store.prepare("T", b"A", group="nobody")
    second = store.prepare("T", b"B", group="P")
    store.on_check("P", lambda transaction: "unknown")
    assert store.wait_dispatched(30)
    assert store._checker.round(store, second.born_timestamp + 3_600_000) == 1 and second.half_offset == 2
    return first, second


QUIET = {"transaction_check_interval_ms": 3_600_000, "transaction_op_interval_ms": 3_600_000}


@pytest.mark.parametrize("compat", ["4.9", "5.x"])
def test_a_broker_finds_one_half_message_of_what_was_put_again(tmp_path, compat):
    """Else it asks for both, and stores the message twice. The transaction itself stays open, in each open of this library."""
    with MessageStore.open(tmp_path, compat=compat, **QUIET, **SMALL) as store:
        first, second = checked_behind_another(store)
    for _ in range(2):
        with MessageStore.open(tmp_path, compat=compat, **QUIET, **SMALL) as store:
            assert settled_for_a_broker(store) == [1]
            assert [(p.id, p.half_offset, p.checks) for p in store.transactions()] == [(first.id, 0, 0), (second.id, 2, 1)]
    with MessageStore.open(tmp_path, compat=compat, **QUIET, **SMALL) as store:
        store.transaction_by_id(second.id).commit()
    with MessageStore.open(tmp_path, compat=compat, **QUIET, **SMALL) as store:
        assert settled_for_a_broker(store) == [1, 2] and [bytes(m.body) for m in store.scan("T")] == [b"B"]
        assert [p.id for p in store.transactions()] == [first.id]
        assert store.transaction_by_id(second.id).state == "committed"
        store.transaction_by_id(first.id).rollback()
        assert store.wait_dispatched(30)
        store._transactions.tend(store)
        assert store.wait_dispatched(30)
        assert store.offsets.query(GROUP, HALF, 0) == 3 == store.max_offset(HALF, 0)
        assert store.offsets.query(GROUP, OP, 0) == store.max_offset(OP, 0)


@pytest.mark.parametrize("decide", ["commit", "rollback"])
@pytest.mark.parametrize("compat", ["4.9", "5.x"])
def test_a_decision_settles_all_half_messages_for_a_broker(tmp_path, compat, decide):
    with MessageStore.open(tmp_path, compat=compat, **QUIET, **SMALL) as store:
        _, second = checked_behind_another(store)
        getattr(second, decide)()
    with MessageStore.open(tmp_path, compat=compat, **QUIET, **SMALL) as store:
        assert settled_for_a_broker(store) == [1, 2] and len(store.transactions()) == 1
        assert second.id not in [pending.id for pending in store.transactions()]


@pytest.mark.parametrize("decide", ["commit", "rollback"])
def test_half_messages_of_4_9_are_settled_in_its_form(tmp_path, decide):
    """Its getLong reads no number in a body of 5.x; 5.x reads one of 4.9."""
    with MessageStore.open(tmp_path, compat="4.9", **SMALL) as store:
        store.prepare("T", b"A", group="P")
        names = [store.prepare("T", b"B", group="P").id for _ in range(2)]
    with MessageStore.open(tmp_path, compat="5.x", **QUIET, **SMALL) as store:
        own = [store.prepare("T", b"C", group="P") for _ in range(2)]
        for transaction in [*own, *(store.transaction_by_id(name) for name in names)]:
            getattr(transaction, decide)()
    with MessageStore.open(tmp_path, compat="5.x", **SMALL) as store:
        found = [bytes(m.body) for m in store.scan(OP)]
        assert b"1" in found and b"2" in found and set(found) - {b"1", b"2"} <= {b"3,4,", b"3,", b"4,"}
        assert len(store.transactions()) == 1
