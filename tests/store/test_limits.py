"""Every limit is checked before the first byte is placed: a typed error names thing, value and cure, and nothing is stored."""
import pickle

import pytest

from rmq_store import MessageStore, errors

SMALL = {"segment_size_bytes": 1 << 18, "index_slots": 100, "index_entries_max": 1000, "message_size_max_bytes": 100_000}


@pytest.fixture(params=["mmap", "pool"])
def store(request, tmp_path):
    with MessageStore.open(tmp_path / "s", write_path=request.param, **SMALL) as s:
        yield s


BAD = [
    ({"topic": ""}, "topic is empty"),
    ({"topic": "a/b"}, "topic is 'a/b'"),
    ({"topic": ".."}, "topic is '..'"),
    ({"topic": "a b"}, "topic is 'a b'"),
    ({"topic": "t\ud800"}, "topic is"),
    ({"topic": "x" * 128}, "topic size is 128 bytes, the limit is 127"),
    ({"topic": 7}, "topic is a int"),
    ({"body": "text"}, "body is a str"),
    ({"body": None}, "body is a NoneType"),
    ({"body": b"x" * 100_001}, "body size is 100001 bytes, the limit is 100000"),
    ({"queue_id": -1}, "queue_id is -1"),
    ({"queue_id": 1 << 31}, "queue_id is 2147483648"),
    ({"queue_id": "0"}, "queue_id is '0'"),
    ({"flag": 1 << 40}, "flag is"),
    ({"tags": "a\x01b"}, "0x01 and 0x02"),
    ({"keys": "a\x02b"}, "0x01 and 0x02"),
    ({"tags": "\ud800"}, "surrogates"),
    ({"tags": 5}, "tags is a int"),
    ({"properties": {"a": "b\x02"}}, "0x0"),
    ({"properties": {"a\x01": "b"}}, "0x0"),
    ({"properties": {"": "b"}}, ""),
    ({"properties": {"TAGS": "x"}, "tags": "y"}, "two names for one field"),
    ({"properties": b"KEYS\x01x\x02", "keys": "y"}, "two names for one field"),
    ({"reconsume_times": -1}, "reconsume_times is -1"),
    ({"born_timestamp": -1}, "born_timestamp is -1"),
    ({"born_host": "nonsense"}, ""),
]


@pytest.mark.parametrize(("bad", "text"), BAD, ids=[next(iter(b)) + str(i) for i, (b, _) in enumerate(BAD)])
def test_refused_with_a_reason(store, bad, text):
    arguments = {"topic": "T", "body": b"x"} | bad
    with pytest.raises((errors.MessageIllegal, ValueError)) as caught:
        store.put(**arguments)
    assert text in str(caught.value)
    assert store.stats()["wrote"] == 0
    with pytest.raises((errors.MessageIllegal, ValueError)):
        store.put_async(**arguments)
    assert store.put("T", b"fine").queue_offset == 0


def test_properties_limit(store):
    with pytest.raises(errors.PropertiesSizeExceeded) as caught:
        store.put("T", b"x", properties={"a": "v" * 32767})
    assert "32767" in str(caught.value)
    for properties in (b"a\x01" + b"v" * 32765, {"a": "v" * 32764}):
        assert store.put("T", b"x", properties=properties).status == 0
    with pytest.raises(errors.PropertiesSizeExceeded):
        store.put("T", b"x", properties=b"a\x01" + b"v" * 32765, tags="t")
    assert store.wait_dispatched(10) and store.max_offset("T", 0) == 2


def test_put_many_refuses_all_or_nothing(store):
    with pytest.raises(errors.MessageIllegal, match="message 2"):
        store.put_many("T", [b"a", b"b", b"x" * 100_001])
    with pytest.raises(errors.MessageIllegal, match="message 1"):
        store.put_many("T", [b"a", "text"])
    with pytest.raises(errors.MessageIllegal, match="bogus"):
        store.put_many("T", [{"body": b"a", "bogus": 1}])
    assert store.stats()["wrote"] == 0
    assert store.put_many("T", []).count == 0


@pytest.mark.parametrize("bad", [
    {"tags": "a\x01b"}, {"keys": "a\x02"}, {"keys": 5}, {"properties": {"k": "v" * 40_000}}, {"flag": "q"}, {"delay": "q"},
    {"properties": {"DELAY": "99x"}}, {"properties": 5}, {"light_queues": ["%LMQ%a"]}, {"bogus": 1}, {"body": "text"}])
def test_put_many_says_which_message_is_wrong(store, bad):
    with pytest.raises(errors.PutError, match="message 1") as caught:
        store.put_many("T", [b"a", {"body": b"x"} | bad, b"c"])
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert store.stats()["wrote"] == 0


def test_a_record_must_fit_a_file(tmp_path):
    with MessageStore.open(tmp_path / "s", segment_size_bytes=8192, index_slots=100, index_entries_max=1000) as s:
        with pytest.raises(errors.MessageIllegal, match="record size"):
            s.put("T", b"x" * 8192)
        room = 200      # for a copy of it in a dead-letter topic
        largest = 8192 - 8 - 91 - 1 - room
        with pytest.raises(errors.MessageIllegal, match=f"the limit is {8192 - 8 - room}"):
            s.put("T", b"x" * (largest + 1))
        assert s.put("T", b"x" * largest).size == 8192 - 8 - room
        assert s.put("T", b"y" * room).offset == 8192
        assert s.wait_dispatched(10) and [len(m.body) for m in s.scan("T", 0)] == [largest, room]


def test_delayed_puts_do_not_vanish(tmp_path):
    small = {"segment_size_bytes": 1 << 18, "index_slots": 100, "index_entries_max": 1000}
    with MessageStore.open(tmp_path / "s", delay="refuse", **small) as s:
        with pytest.raises(errors.ServiceNotAvailable, match="store_only"):
            s.put("T", b"x", properties={"DELAY": "3"})
        with pytest.raises(errors.ServiceNotAvailable):
            s.put_many("T", [b"x"], properties={"DELAY": "3"})
        assert s.stats()["wrote"] == 0
        assert s.put("T", b"x", properties={"DELAY": "0"}).queue_offset == 0
    with MessageStore.open(tmp_path / "s", delay="store_only", **small) as s:
        put = s.put("T", b"later", queue_id=5, properties={"DELAY": "99"})
        assert s.wait_dispatched(10)
        message = s.message_at(put.offset)
        assert (message.topic, message.queue_id) == ("SCHEDULE_TOPIC_XXXX", 17)
        assert message.properties == {"DELAY": "18", "REAL_TOPIC": "T", "REAL_QID": "5"}
        assert s.raw_entry("SCHEDULE_TOPIC_XXXX", 17, 0)[2] == message.store_timestamp + 7_200_000


def test_open_refuses_bad_places_and_options(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotADirectoryError, match="is a file"):
        MessageStore.open(tmp_path / "file")
    with pytest.raises(FileNotFoundError):
        MessageStore.open(tmp_path / "absent", readonly=True)
    with pytest.raises(errors.ConfigError, match="segment_size_bytes"):
        MessageStore.open(tmp_path / "s", segment_size_byte=1)
    with pytest.raises(errors.ConfigError, match="two names"):
        MessageStore.open(tmp_path / "s", segment_size_bytes=8192, mappedFileSizeCommitLog="8192")
    with pytest.raises(errors.ConfigError, match="profile"):
        MessageStore.open(tmp_path / "s", profile="warp")
    with pytest.raises(errors.BackendUnavailable, match="io_uring"):
        MessageStore.open(tmp_path / "s", flush_backend="io_uring", write_path="mmap")
    assert not (tmp_path / "s").exists() and not (tmp_path / "absent").exists()
