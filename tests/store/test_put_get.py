"""One message from put to get, on every write path and flush mode: what is returned, in which order, with which fields."""
import pytest

from rmq_store import MessageStore
from rmq_store.status import GetStatus, PutStatus

WAYS = [(w, f, b) for w in ("mmap", "pool") for f in ("async", "sync") for b in ("fdatasync", "msync")]
SMALL = {"segment_size_bytes": 1 << 18, "consumequeue_file_size_bytes": 2000, "index_slots": 100, "index_entries_max": 1000}


@pytest.fixture(params=WAYS, ids=["-".join(w) for w in WAYS])
def store(request, tmp_path):
    write_path, flush_mode, backend = request.param
    with MessageStore.open(tmp_path / "s", write_path=write_path, flush_mode=flush_mode, flush_backend=backend, **SMALL) as s:
        yield s


def test_fields_come_back(store):
    put = store.put("Topic-1", b"body", queue_id=3, tags="TagA", keys="k1 k2", properties={"user": "värde"}, flag=-5,
                    sys_flag=2, born_timestamp=1_700_000_000_123, born_host="192.0.2.9:4711", reconsume_times=7)
    assert put.status is PutStatus.PUT_OK and (put.offset, put.queue_offset) == (0, 0)
    assert store.wait_dispatched(10)
    found = store.get("Topic-1", 3, 0)
    assert found.status is GetStatus.FOUND and (found.next_offset, found.min_offset, found.max_offset) == (1, 0, 1)
    message = found[0]
    assert bytes(message.body) == b"body" == bytes(message) and message.topic == "Topic-1" and message.queue_id == 3
    assert (message.tags, message.keys, message.properties["user"]) == ("TagA", "k1 k2", "värde")
    assert (message.flag, message.sys_flag, message.reconsume_times) == (-5, 2, 7)
    assert message.born_timestamp == 1_700_000_000_123 and message.born_host == "192.0.2.9:4711"
    assert message.store_timestamp == put.store_timestamp and message.store_host == "127.0.0.1:10911"
    assert message.msg_id == put.msg_id and store.message_by_id(put.msg_id).offset == put.offset
    assert message.body_crc_ok and message.size == put.size and message.offset == put.offset
    assert store.message_at(put.offset).raw == message.raw


def test_many_messages_roll_over_files_in_order(store):
    bodies = [bytes([i % 251]) * (i % 700) for i in range(3000)]
    places = [store.put("T", body, queue_id=i % 3, tags=f"Tag{i % 5}") for i, body in enumerate(bodies)]
    assert store.wait_dispatched(30)
    assert store.stats()["log_files"] > 3
    for queue in range(3):
        assert store.max_offset("T", queue) == 1000
        assert [bytes(m.body) for m in store.scan("T", queue)] == bodies[queue::3]
    assert [m.offset for m in store.scan()] == [p.offset for p in places]
    kinds = [kind for kind, *_ in store.log_records()]
    assert kinds.count("msg") == 3000 and kinds.count("blank") == store.stats()["log_files"] - 1


def test_put_many_equals_single_puts(store):
    bodies = [b"%d" % i * (i % 50) for i in range(2500)]
    many = store.put_many("T", bodies, tags="X", keys="key")
    assert (many.count, many.status) == (2500, PutStatus.PUT_OK) and many.queue_offsets == list(range(2500))
    single = [store.put("U", body, tags="X", keys="key") for body in bodies[:100]]
    assert store.wait_dispatched(30)
    for i, offset in enumerate(many.offsets[:100]):
        ours, theirs = store.message_at(offset), store.message_at(single[i].offset)
        assert bytes(ours.body) == bytes(theirs.body) and ours.properties_raw == theirs.properties_raw
        assert ours.size == theirs.size
    assert [bytes(m.body) for m in store.scan("T", 0)] == bodies


def test_put_many_of_mappings(store):
    many = store.put_many("T", [b"a", {"body": bytearray(b"b"), "tags": "B", "flag": 4},
                                {"body": b"c", "properties": {"x": "1"}}])
    assert many.count == 3 and store.wait_dispatched(10)
    a, b, c = store.scan("T", 0)
    assert (a.tags, b.tags, b.flag, c.properties) == (None, "B", 4, {"x": "1"}) and bytes(b.body) == b"b"


def test_tags_select_by_hash_then_name(store):
    for i in range(90):
        store.put("T", b"%d" % i, tags=("Aa", "BB", "C")[i % 3])     # Aa and BB have the same hash code
    assert store.wait_dispatched(10)
    assert [bytes(m.body) for m in store.get("T", 0, 0, tags="Aa")] == [b"%d" % i for i in range(0, 48, 3)]
    assert {m.tags for m in store.get("T", 0, 0, tags="Aa || C")} == {"Aa", "C"}
    assert len(store.get("T", 0, 0, tags="*")) == 32
    none = store.get("T", 0, 0, tags="other")
    assert none.status is GetStatus.NO_MATCHED_MESSAGE and none.next_offset == 90


def test_statuses_and_corrections(store):
    assert store.get("T", 0, 5).status is GetStatus.NO_MESSAGE_IN_QUEUE and store.get("T", 0, 5).next_offset == 0
    store.put_many("T", [b"x"] * 10)
    assert store.wait_dispatched(10)
    table = {-1: (GetStatus.OFFSET_TOO_SMALL, 0), 10: (GetStatus.OFFSET_OVERFLOW_ONE, 10),
             11: (GetStatus.OFFSET_OVERFLOW_BADLY, 10), 9: (GetStatus.FOUND, 10)}
    for offset, (status, following) in table.items():
        result = store.get("T", 0, offset)
        assert (result.status, result.next_offset) == (status, following), offset
    assert len(store.get("T", 0, 0, 4)) == 4 and len(store.get("T", 0, 0, max_bytes=1)) == 1


def test_transaction_flags_rule_the_queue_offset(store):
    kinds = [0, 4, 8, 12, 0]
    offsets = [store.put("T", b"x", sys_flag=kind).queue_offset for kind in kinds]
    assert offsets == [0, 0, 1, 0, 2]
    assert store.wait_dispatched(10) and store.max_offset("T", 0) == 3
    assert len(list(store.scan())) == 5


def test_wait_property_and_argument(tmp_path):
    with MessageStore.open(tmp_path / "s", flush_mode="sync", **SMALL) as s:
        s.put("T", b"1")
        assert s.stats()["flushed"] == s.stats()["wrote"]
        before = s.stats()["flushes"]
        for _ in range(50):
            assert s.put("T", b"2", wait=False).status is PutStatus.PUT_OK
            assert s.put("T", b"3", properties={"WAIT": "false"}).status is PutStatus.PUT_OK
        assert s.stats()["flushes"] - before < 100
    with MessageStore.open(tmp_path / "a", flush_mode="async", **SMALL) as s:
        result = s.put("T", b"1", wait=True)
        assert s.stats()["flushed"] >= result.offset + result.size
