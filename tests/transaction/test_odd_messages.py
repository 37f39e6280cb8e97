"""Half and op messages that no broker writes, and offsets that are wrong. None of them may stop the other transactions."""
import time

import pytest

from rmq_store import MessageStore, errors
from tests.soon import until

SMALL = {"segment_size_bytes": 1 << 20, "index_slots": 100, "index_entries_max": 1000}
HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
HOUR = 3_600_000
GOOD = {"UNIQ_KEY": "odd", "REAL_TOPIC": "T", "REAL_QID": "0", "TRAN_MSG": "true", "PGROUP": "P"}
HALVES = {"checks are a superscript": {"TRANSACTION_CHECK_TIMES": "²"},
          "checks are long": {"TRANSACTION_CHECK_TIMES": "9" * 5000},
          "origin is a superscript": {"TRAN_PREPARED_QUEUE_OFFSET": "²"}, "queue is negative": {"REAL_QID": "-1"},
          "queue is large": {"REAL_QID": "9" * 20}, "queue is long": {"REAL_QID": "9" * 5000},
          "queue is a word": {"REAL_QID": "x"},
          "topic is the op topic": {"REAL_TOPIC": OP}, "topic is the half topic": {"REAL_TOPIC": HALF},
          "topic is a path": {"REAL_TOPIC": "../../x"}, "immunity is long": {"CHECK_IMMUNITY_TIME_IN_SECONDS": "9" * 5000}}
OPS = {"long": b"9" * 5000, "superscript": "²".encode(), "of what is to come": b"1,2,3,4,5,6,999999999999",
       "words": b"a,b,,-1, 1"}


def opened(path, **options):
    return MessageStore.open(path, **SMALL | {"transaction_check_interval_ms": HOUR} | options)


def good_ones_work(store, name):
    """One that was prepared before, and a new one; and a check."""
    assert "before" in [p.id for p in store.transactions()]
    store.prepare("T", name, group="P").commit()
    store.prepare("T", b"rolled back", group="P").rollback()
    store.on_check("P", lambda transaction: "unknown")
    store._checker.round(store, int(time.time() * 1000) + HOUR)
    assert "before" in [p.id for p in store.transactions()]


@pytest.mark.parametrize("topic,properties,body", [
    *(pytest.param(HALF, GOOD | odd, b"odd", id=name) for name, odd in HALVES.items()),
    *(pytest.param(OP, {"TAGS": "d"}, body, id=f"op {name}") for name, body in OPS.items())])
@pytest.mark.parametrize("loaded", [False, True])
def test_odd_messages_stop_nothing(tmp_path, topic, properties, body, loaded):
    with opened(tmp_path) as store:
        store.prepare("T", b"before", group="P", properties={"UNIQ_KEY": "before"})
        if loaded:
            assert len(store.transactions()) == 1
        store.put(topic, body, properties=properties)
        assert store.wait_dispatched(30)
        good_ones_work(store, b"1")
    with opened(tmp_path) as store:
        good_ones_work(store, b"2")
        store.transaction_by_id("before").commit()
    with opened(tmp_path) as store:
        assert "before" not in [p.id for p in store.transactions()]
        assert [bytes(m.body) for m in store.scan("T")] == [b"1", b"2", b"before"]


def test_a_store_closes_whatever_its_op_messages_meet(tmp_path, monkeypatch):
    """Else its lock would stay, and no close() could ever end."""
    store = opened(tmp_path)
    store.prepare("T", b"1", group="P")
    monkeypatch.setattr(store._transactions, "tend", lambda store: 1 // 0)
    store.close()
    with opened(tmp_path) as store:
        assert len(store.transactions()) == 1


@pytest.mark.parametrize("compat", ["4.9", "5.x"])
def test_properties_of_a_former_transaction_are_not_taken_over(tmp_path, compat):
    """A program prepares what it has read, with the properties of that. Each is a transaction of its own, in every life."""
    former = {"TRAN_PREPARED_QUEUE_OFFSET": "0", "TRANSACTION_CHECK_TIMES": "14", "mine": "1"}
    with opened(tmp_path, compat=compat) as store:
        for i in range(3):
            store.prepare("T", b"%d" % i, group="P", properties=former | {"UNIQ_KEY": f"U{i}"})
        assert [(p.id, p.checks) for p in store.transactions()] == [("U0", 0), ("U1", 0), ("U2", 0)]
    with opened(tmp_path, compat=compat) as store:
        assert [(p.id, p.checks) for p in store.transactions()] == [("U0", 0), ("U1", 0), ("U2", 0)]
        store.transaction_by_id("U0").rollback()
        for name in ("U1", "U2"):
            store.transaction_by_id(name).commit()
    with opened(tmp_path, compat=compat) as store:
        assert store.transactions() == [] and [bytes(m.body) for m in store.scan("T")] == [b"1", b"2"]
        assert [m.properties["mine"] for m in store.scan("T")] == ["1", "1"]


def test_prepare_leaves_room_for_what_a_check_adds(tmp_path):
    """Else a check could not put the half message again, as long as it is there."""
    with opened(tmp_path) as store:
        size, prepared = 32_767, None
        while prepared is None:
            try:
                prepared = store.prepare("T", b"", group="P", properties={"x": "y" * size})
            except errors.PropertiesSizeExceeded as error:
                assert "put what is long into the body" in str(error)
                size -= 1
        asked = []
        store.on_check("P", lambda transaction: asked.append(transaction.checks))
        for _ in range(3):
            assert store._checker.round(store, int(time.time() * 1000) + HOUR) == 1
        assert asked == [1, 2, 3]


def test_one_that_cannot_be_put_again_does_not_keep_the_others_from_their_check(tmp_path):
    """A broker's half message with properties that leave no room."""
    with opened(tmp_path) as store:
        store.put(HALF, b"odd", properties=GOOD | {"x": "y" * 32_680})
        store.prepare("T", b"1", group="P")
        assert store.wait_dispatched(30)
        asked = []
        store.on_check("P", lambda transaction: asked.append(bytes(transaction.message.body)))
        store._checker.round(store, int(time.time() * 1000) + HOUR)
        assert asked == [b"odd", b"1"]


@pytest.mark.parametrize("topics", [(HALF, OP), (HALF,), (OP,)])
@pytest.mark.parametrize("offset", [0, 1 << 40])
def test_wrong_committed_offsets_lose_nothing(tmp_path, offset, topics):
    """Offsets beyond the end, as of another store, say nothing: the queues are read from their begin. That of the half queue
    alone, which an operator can move, does not bring back what op messages below the other offset have settled."""
    with opened(tmp_path) as store:
        store.prepare("T", b"rolled back", group="P").rollback()
        name = store.prepare("T", b"1", group="P").id
        store.prepare("T", b"rolled back", group="P").rollback()
    with opened(tmp_path) as store:
        for topic in topics:
            store.offsets.commit("CID_RMQ_SYS_TRANS", topic, 0, offset)
        store.offsets.flush()
        assert [p.id for p in store.transactions()] == [name]
    with opened(tmp_path) as store:
        assert [p.id for p in store.transactions()] == [name]
        store.transaction_by_id(name).commit()


def test_a_follower_sees_decisions_of_its_writer(tmp_path):
    with opened(tmp_path, transaction_op_interval_ms=HOUR) as store:
        held = [store.prepare("T", b"%d" % i, group="P", wait=True) for i in range(3)]
        with opened(tmp_path, readonly=True, follow=True) as reader:
            assert reader.get(HALF, 0, 2, wait=60).messages and len(reader.transactions()) == 3
            held[1].rollback(wait=True)
            held[0].commit(wait=True)
            assert reader.get(OP, 0, 0, wait=60).messages and reader.get("T", 0, 0, wait=60).messages
            # A record enters its queue before it enters the index, and a follower finds a new index file within a second.
            until(lambda: all(reader.message_by_unique_key(HALF, t.id) for t in held))
            assert [p.id for p in reader.transactions()] == [held[2].id]
            assert [reader.transaction_by_id(t.id).state for t in held] == ["committed", "rolled back", "pending"]


@pytest.mark.parametrize("flag", [4, 8, 12])
def test_flags_of_another_transaction_are_not_taken_over(tmp_path, flag):
    with opened(tmp_path) as store:
        first = store.prepare("T", b"1", group="P")
        second = store.prepare("T", b"2", group="P", sys_flag=flag)
        assert [p.id for p in store.transactions()] == [first.id, second.id] and first.id != second.id
