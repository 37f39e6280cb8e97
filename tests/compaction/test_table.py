"""store.table: the newest message of each key, kept up to date; and topics whose messages need a key."""
import errno
import threading

import pytest

from rmq_store import MessageStore, errors
from rmq_store.codec.batch import encode_batch
from rmq_store.services.compaction._places import Places
from rmq_store.services.consumer.config_file import ConfigFile

SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 2000, "index_slots": 100, "index_entries_max": 1000}


@pytest.fixture
def store(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as made:
        yield made


def shown(table):
    return {key: bytes(message.body) for key, message in table.items()}


def test_the_newest_value_of_each_key(store):
    for i in range(1000):
        store.put("T", b"v%d" % i, keys=f"k{i % 10}")
    store.wait_dispatched(10)
    table = store.table("T")
    assert shown(table) == {f"k{i % 10}": b"v%d" % i for i in range(990, 1000)}
    assert len(table) == 10 and "k3" in table and "k10" not in table and 3 not in table
    assert (table["k3"].queue_offset, table.get("none"), table.offsets) == (993, None, {0: 1000})
    with pytest.raises(KeyError):
        table["none"]
    assert [bytes(m.body) for m in table.values()] == [b"v%d" % i for i in range(990, 1000)]


def test_it_is_kept_up_to_date_and_an_empty_body_deletes(store):
    table = store.table("T")
    assert len(table) == 0 and table.refresh() == 0
    put = store.put("T", b"1", keys="a")
    assert table.wait(0, put.queue_offset, 10) and shown(table) == {"a": b"1"}
    store.put("T", b"", keys="a")
    store.put("T", b"", keys="never")
    put = store.put("T", b"2", keys="b c")
    store.put("T", b"no key")
    assert table.wait(0, put.queue_offset, 10) and shown(table) == {"b c": b"2"}        # all of KEYS is one key
    store.put("T", b"3", keys="a", queue_id=5)
    store.wait_dispatched(10)
    assert shown(table) == {"b c": b"2", "a": b"3"} and len(table) == 2
    assert not table.wait(5, 1, 0)


def test_queues_agree_by_store_time(store):
    store.put("T", b"new", keys="a", queue_id=1, born_timestamp=1)
    table = store.table("T")
    first = store.put("T", b"old", keys="b", queue_id=0)
    while store.put("U", b"x").store_timestamp == first.store_timestamp:
        pass
    store.put("T", b"new", keys="b", queue_id=1)
    put = store.put("T", b"", keys="a", queue_id=0)
    table.wait(0, put.queue_offset, 10)
    store.wait_dispatched(10)
    assert shown(table) == shown(store.table("T")) == {"b": b"new"}


def test_more_keys_than_the_limit_are_refused(store):
    store.put_many("T", [{"body": b"x", "keys": f"k{i % 4}"} for i in range(100)])
    store.wait_dispatched(10)
    table = store.table("T", keys_max=4)
    assert len(table) == 4
    store.put("T", b"x", keys="k4")
    store.wait_dispatched(10)
    for _ in range(2):
        with pytest.raises(errors.StoreStateError, match="keys in the table of T is more than 4, the limit is 4: allow"):
            len(table)
    for keys_max in (0, 1.5, "x"):
        with pytest.raises(errors.ArgumentIllegal):
            store.table("T", keys_max=keys_max)
    with pytest.raises(errors.ArgumentIllegal):
        store.table(b"T")


def test_what_cleaning_deletes_leaves_the_table(store):
    store.put("T", b"old", keys="a")
    put = store.put_many("T", [{"body": bytes(1000), "keys": f"k{i}"} for i in range(200)])
    store.wait_dispatched(10)
    table = store.table("T")
    held = table["a"]
    assert len(table) == 201
    del held
    store.flush()
    store.clean(hours=0)
    low = store.min_offset("T", 0)
    assert low > 1 and sorted(table) == sorted(f"k{i}" for i in range(low - 1, 200)) and len(table) == 201 - low
    assert "a" not in table and table["k199"].queue_offset == put.queue_offsets[199]


def test_a_queue_that_begins_anew(store):
    store.put("T", b"1", keys="a")
    store.put("T", b"1", keys="b")
    store.wait_dispatched(10)
    table = store.table("T")
    assert len(table) == 2
    store.delete_topics("T")
    store.put("T", b"2", keys="b")
    store.wait_dispatched(10)
    assert shown(table) == {"b": b"2"}


def test_readers_and_a_writer(store):
    table, done = store.table("T"), threading.Event()
    wrong = []

    def read():
        before = {}
        while not done.is_set():
            for key, message in table.items():
                if message.queue_offset < before.get(key, -1) or message.keys != key:
                    wrong.append((key, message))
                before[key] = message.queue_offset

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for i in range(3000):
        store.put("T", b"" if i % 17 == 0 else b"v", keys=f"k{i % 50}")
    store.wait_dispatched(10)
    last = shown(table)
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert set(last) == {f"k{i % 50}" for i in range(2950, 3000) if i % 17}


def test_of_a_store_that_is_read_or_followed_or_closed(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        store.put("T", b"1", keys="a")
        store.wait_dispatched(10)
        with MessageStore.open(tmp_path / "s", readonly=True, follow=True, **SMALL) as follower:
            table = follower.table("T")
            assert shown(table) == {"a": b"1"}
            put = store.put("T", b"2", keys="b")
            assert table.wait(0, put.queue_offset, 20) and shown(table) == {"a": b"1", "b": b"2"}
    with pytest.raises(errors.StoreClosed):
        table["a"]
    with MessageStore.open(tmp_path / "s", readonly=True, **SMALL) as dead:
        table = dead.table("T")
        assert shown(table) == {"a": b"1", "b": b"2"}
        with pytest.raises(errors.StoreStateError):
            table.wait(0, 5, 0)


def test_unreadable_while_the_store_is(store):
    store.put("T", b"1", keys="a")
    store.wait_dispatched(10)
    store.set_readable(False)
    with pytest.raises(errors.StoreNotReadable):
        store.table("T")


def test_places_forget_deleted_keys_after_two_rounds(store):
    store.put("T", b"", keys="a")
    store.wait_dispatched(10)
    places = Places()
    places.begin_round()
    assert places.take(store, "T", 0, 0, 1, 10) == 1 and (len(places), places.live, places.keys()) == (1, 0, [])
    places.begin_round()
    assert len(places) == 1
    places.begin_round()
    assert len(places) == 0 and places.take(store, "T", 0, 1, 1, 10) == 1


def test_of_a_light_queue(tmp_path):
    """Its messages say their offsets in other queues."""
    with MessageStore.open(tmp_path / "s", enable_lmq=True, enable_multi_dispatch=True, **SMALL) as store:
        for i in range(300):
            store.put("dev", b"%d" % i, keys=f"k{i % 3}", **({"light_queues": ["l"]} if i % 2 else {}))
        store.put("%LMQ%l", b"own", keys="own")
        store.wait_dispatched(10)
        table = store.table("%LMQ%l")
        assert shown(table) == {"k0": b"297", "k1": b"295", "k2": b"299", "own": b"own"} and table.offsets == {0: 151}
        assert table["k1"].queue_offset == 295      # in its own queue
        store.put("dev", b"", keys="k1", light_queues=["l"])
        store.wait_dispatched(10)
        assert list(table) == ["k0", "k2", "own"]
        store.put("dev", bytes(1000), keys="k0")
        store.put_many("dev", [bytes(1000)] * 200)
        store.put("dev", b"new", keys="k3", light_queues=["l"])
        store.wait_dispatched(10)
        store.flush()
        store.clean(hours=0)
        assert store.min_offset("%LMQ%l", 0) > 150 and shown(table) == shown(store.table("%LMQ%l")) == {"k3": b"new"}


def test_of_a_topic_with_batch_queues(store):
    def batch(*pairs):
        return store.put_inner_batch("B", [{"body": body, "properties": {"KEYS": key}} for key, body in pairs])

    store.topic_table.set_queue_type("B", "BatchCQ")
    batch(("A", b"a1"), ("B", b"b1"))
    batch(("A", b"a2"), ("C", b"c"))
    store.wait_dispatched(10)
    table = store.table("B")
    assert shown(table) == {"A": b"a2", "B": b"b1", "C": b"c"} and table.offsets == {0: 4}
    put = batch(("B", b""), ("C", b"c2"), ("C", b"c3"))
    assert table.wait(0, put.queue_offsets[-1], 10) and shown(table) == {"A": b"a2", "C": b"c3"}
    batch(*((f"k{i}", b"%d" % i) for i in range(700)))      # more than one look takes
    store.wait_dispatched(10)
    assert shown(table) == {"A": b"a2", "C": b"c3"} | {f"k{i}": b"%d" % i for i in range(700)} and table.offsets == {0: 707}
    store.flush()
    for _ in range(200):
        batch(("last", bytes(1000)))
    store.flush()
    store.wait_dispatched(10)
    store.clean(hours=0)
    assert store.min_offset("B", 0) > 707 and list(table) == ["last"] == list(store.table("B"))


# ---- topics whose messages need a key

PUTS = [lambda s, **k: s.put("C", b"x", **k), lambda s, **k: s.put_async("C", b"x", **k).result(10),
        lambda s, **k: s.put_many("C", [b"x", b"y"], **k), lambda s, **k: s.put_many("C", [{"body": b"x", **k}]),
        lambda s, **k: s.prepare("C", b"x", group="g", **k).commit()]


@pytest.mark.parametrize("put", PUTS)
def test_a_message_of_a_compaction_topic_needs_a_key(store, put):
    put(store)                                  # not yet one
    store.topic_table.set_cleanup_policy("C", "COMPACTION")
    for none in ({}, {"keys": ""}, {"keys": " \t"}, {"keys": []}, {"properties": {"KEYS": " "}}):
        with pytest.raises(errors.MessageIllegal, match="C is a compaction topic"):
            put(store, **none)
    for some in ({"keys": "a"}, {"keys": iter(["a", "b"])}, {"properties": {"KEYS": "a"}}):
        put(store, **some)
    store.put("D", b"x")
    store.topic_table.set_cleanup_policy("C", "DELETE")
    put(store)


def test_a_batch_needs_keys_and_a_hook_may_give_one(store):
    store.topic_table.set_cleanup_policy("C", "COMPACTION")
    keyed = encode_batch([{"body": b"x", "properties": {"KEYS": "k"}}])
    bare = encode_batch([{"body": b"x", "properties": {"KEYS": "k"}}, b"y"])
    store.put_batch("C", keyed)
    with pytest.raises(errors.MessageIllegal, match="message 1 has no keys"):
        store.put_batch("C", bare)
    store.put_batch("C", bare, properties={"KEYS": "all"})
    store.add_put_hook(lambda message: message.put_property("KEYS", "given"))
    store.put("C", b"z")
    store.wait_dispatched(10)
    assert store.table("C").keys() >= {"k", "given"}


def test_batch_queues_are_not_compacted(store):
    store.topic_table.set_queue_type("B", "BatchCQ")
    with pytest.raises(errors.ArgumentIllegal, match="B has batch queues"):
        store.topic_table.set_cleanup_policy("B", "COMPACTION")
    store.topic_table.set_cleanup_policy("B", "DELETE")
    store.topic_table.set_cleanup_policy("C", "COMPACTION")
    with pytest.raises(errors.ArgumentIllegal, match="C is a compaction topic"):
        store.topic_table.set_queue_type("C", "BatchCQ")
    store.topic_table.set_queue_type("C", "SimpleCQ")


@pytest.mark.parametrize("before", ["DELETE", "COMPACTION"])
def test_a_full_disk_leaves_the_policy_as_it_was(tmp_path, monkeypatch, before):
    def full(*_):
        raise OSError(errno.ENOSPC, "no space left on device")

    after = "COMPACTION" if before == "DELETE" else "DELETE"
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        table = store.topic_table
        table.set("C", readQueueNums=7)
        if before == "COMPACTION":
            table.set_cleanup_policy("C", before)
        entry = table.get("C")
        with monkeypatch.context() as patch:
            patch.setattr(ConfigFile, "save", full)
            with pytest.raises(OSError, match="no space left"):
                table.set_cleanup_policy("C", after)
        assert table.get("C") == entry and ("C" in table.compacted()) == (before == "COMPACTION")
        if before == "DELETE":
            store.put("C", b"without a key")
        else:
            with pytest.raises(errors.MessageIllegal):
                store.put("C", b"without a key")
        table.set("Other", readQueueNums=3)         # a later write has nothing of it
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        assert store.topic_table.get("C") == entry
        assert store.topic_table.set_cleanup_policy("C", after)["attributes"]["cleanup.policy"] == after


def test_the_policy_is_kept_and_a_damaged_file_stops_no_open(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        entry = store.topic_table.set_cleanup_policy("C", "COMPACTION")
        assert entry["attributes"] == {"cleanup.policy": "COMPACTION"}
        with pytest.raises(errors.ArgumentIllegal, match="policy is 'compact'"):
            store.topic_table.set_cleanup_policy("C", "compact")
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        with pytest.raises(errors.MessageIllegal):
            store.put("C", b"x")
        store.topic_table.remove("C")
        store.put("C", b"x")
    for name in ("topics.json", "topics.json.bak"):
        (tmp_path / "s/config" / name).write_text("{")
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        store.put("C", b"x")
        with pytest.raises(errors.ConfigFileCorrupted):
            _ = store.topic_table


def test_a_store_of_4_9_has_no_policies(tmp_path, rmqstore):
    with MessageStore.open(tmp_path / "s", compat="4.9", **SMALL) as store, pytest.raises(ValueError, match="attributes"):
        store.topic_table.set_cleanup_policy("C", "COMPACTION")


def test_the_command_sets_it(tmp_path, rmqstore):
    MessageStore.open(tmp_path / "s", **SMALL).close()
    code, out, _ = rmqstore("topics", "set", tmp_path / "s", "-t", "C", "--cleanup-policy", "COMPACTION")
    assert code == 0 and "cleanup policy COMPACTION" in out
    assert "cleanup policy COMPACTION" in rmqstore("topics", "list", tmp_path / "s")[1]
    assert rmqstore("topics", "set", tmp_path / "s", "-t", "C", "--cleanup-policy", "DELETE")[0] == 0
    assert "cleanup" not in rmqstore("topics", "list", tmp_path / "s")[1]
