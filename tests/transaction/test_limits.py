"""A transaction that is prepared can be decided, whatever the limits are by then: what the store has to put always fits."""
import time

import pytest

from rmq_store import MessageStore, errors

SMALL = {"segment_size_bytes": 1 << 20, "index_slots": 100, "index_entries_max": 1000,
         "transaction_check_interval_ms": 3_600_000}
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
LOWER = {"message_size_max_bytes": 10, "topic_size_max_bytes": 1, "record_crc": True, "lmq_count_max": 1}


def prepare(store, body=b"b" * 100_000, **more):
    return store.prepare("T" * 100, body, group="P", properties={"UNIQ_KEY": "u"} | more)


def fullest(store, **more):
    """The half message with the longest properties that prepare() takes."""
    low, high = 0, 32_767
    while high - low > 1:
        middle = (low + high) // 2
        try:
            prepare(store, b"b", k="x" * middle, **more).rollback()
            low = middle
        except errors.PropertiesSizeExceeded:
            high = middle
    return {"k": "x" * low, **more}


@pytest.mark.parametrize("how", ["commit", "rollback", "give up"])
@pytest.mark.parametrize("kind", ["large body", "full properties"])
def test_limits_that_are_lower_by_then(tmp_path, kind, how):
    with MessageStore.open(tmp_path, **SMALL) as store:
        more = {} if kind == "large body" else fullest(store)
        prepare(store, b"b" * (100_000 if kind == "large body" else 1), **more)
    with MessageStore.open(tmp_path, **SMALL | LOWER | {"transaction_check_max": 3}) as store:
        asked = []
        store.on_check("P", lambda transaction: asked.append(transaction.checks))
        for _ in range(2):
            store._checker.round(store, int(time.time() * 1000) + 3_600_000)
        assert asked == [1, 2]          # the half message was put again with one check more
        if how == "give up":
            for _ in range(2):
                store._checker.round(store, int(time.time() * 1000) + 3_600_000)
        else:
            getattr(store.transaction_by_id("u"), how)()
        assert store.transactions() == []
        assert store.wait_dispatched(30)
        topic = {"commit": "T" * 100, "give up": "TRANS_CHECK_MAX_TIME_TOPIC"}.get(how)
        if topic:
            message, = store.scan(topic, 0)
            assert set(bytes(message.body)) == {ord("b")} and message.properties.get("k") == more.get("k")
    with MessageStore.open(tmp_path, **SMALL) as store:
        assert store.transactions() == []


def test_a_half_message_of_a_peer_with_full_properties(tmp_path):
    raw = (b"UNIQ_KEY\x01u\x02TRAN_MSG\x01true\x02PGROUP\x01P\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02odd\x011\x012\x02k\x01")
    with MessageStore.open(tmp_path, **SMALL) as store:
        store.put(HALF, b"b", properties=raw + b"x" * (32_767 - len(raw)))
    with MessageStore.open(tmp_path, **SMALL | LOWER) as store:
        asked = []
        store.on_check("P", lambda transaction: asked.append(transaction.id))
        store._checker.round(store, int(time.time() * 1000) + 3_600_000)
        assert asked == ["u"]           # although there is no room for the count
        store.transaction_by_id("u").commit()
        assert store.wait_dispatched(30)
        message, = store.scan("T", 0)
        assert message.properties["k"] == "x" * (32_767 - len(raw)) and message.properties["odd"] == "1\x012"


def test_a_number_of_light_queues_that_is_lower_by_then(tmp_path):
    light = {"enable_lmq": True, "enable_multi_dispatch": True}
    with MessageStore.open(tmp_path, **SMALL | light) as store:
        prepare(store, INNER_MULTI_DISPATCH="%LMQ%a,%LMQ%b")
    with MessageStore.open(tmp_path, **SMALL | light | LOWER) as store:
        store.transaction_by_id("u").commit()
        assert store.wait_dispatched(30)
        assert [len(list(store.scan(name, 0))) for name in ("%LMQ%a", "%LMQ%b", "T" * 100)] == [1, 1, 1]
        with pytest.raises(errors.LmqConsumeQueueNumExceeded):
            store.put("U", b"", light_queues=["c"])
