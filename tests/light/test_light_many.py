"""Light queues of put_many and put_batch, and of messages that are copied from another store."""
import pytest

from rmq_store import MessageStore, copy_messages, errors, verify
from rmq_store.base.io._io import ProbeIo
from rmq_store.codec.batch import encode_batch

SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 2000, "index_slots": 100, "index_entries_max": 1000,
         "enable_lmq": True, "enable_multi_dispatch": True}


def bodies(store, topic="%LMQ%a"):
    return [bytes(m.body) for m in store.get(topic, 0, 0)]


def places(store, queue_id=0):
    return [m.properties.get("INNER_MULTI_QUEUE_OFFSET") for m in store.get("T", queue_id, 0)]


def test_many_messages_are_in_their_light_queues(tmp_path):
    with MessageStore.open(tmp_path, **SMALL) as s:
        s.put_many("T", [b"0", b"1"], light_queues=(name for name in ("a", "b")))       # names that can be read once
        s.put_many("T", [{"body": b"2", "light_queues": ["b"]}, b"3", {"body": b"4", "light_queues": iter(["a"])}])
        s.put_many("T", [b"5", b"6"], properties={"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "77"})
        assert s.wait_dispatched(10)
        assert bodies(s) == [b"0", b"1", b"4", b"5", b"6"] and bodies(s, "%LMQ%b") == [b"0", b"1", b"2"]
        assert places(s) == ["0,0", "1,1", "2", None, "2", "3", "4"]
    assert list(verify(tmp_path, **SMALL)) == []


@pytest.mark.parametrize(("odd", "error"), [
    ({"light_queues": ["a,b"]}, errors.MessageIllegal), ({"light_queues": "a"}, errors.MessageIllegal),
    ({"light_queues": ["a"], "properties": {"DELAY": "1"}}, errors.MessageIllegal),
    ({"light_queues": [f"{i}-{'x' * 200}" for i in range(200)]}, errors.PropertiesSizeExceeded),
    ({"light_queues": [f"n{i}" for i in range(251)]}, errors.LmqConsumeQueueNumExceeded),
])
def test_one_bad_message_and_none_is_stored(tmp_path, odd, error):
    with MessageStore.open(tmp_path, lmq_count_max=250, **SMALL) as s:
        with pytest.raises(error):
            s.put_many("T", [b"0", {"body": b"1"} | odd], light_queues=["a"])
        assert s.max_offset("T", 0) == 0 and s.put("T", b"x", light_queues=["a"]).queue_offset == 0
    with MessageStore.open(tmp_path / "off") as s, pytest.raises(errors.ServiceNotAvailable, match="enable_lmq"):
        s.put_many("T", [b"0"], light_queues=["a"])


def test_hooks_are_asked_for_messages_with_light_queues(tmp_path):
    seen = []
    with MessageStore.open(tmp_path, **SMALL) as s:
        s.add_put_hook(lambda m: seen.append(bytes(m.body)) or m.put_property("by", "hook"))
        s.put_many("T", [{"body": b"0", "light_queues": ["a"]}, b"1"])
        assert s.wait_dispatched(10) and seen == [b"0", b"1"] and bodies(s) == [b"0"]
        assert [m.properties["by"] for m in s.get("T", 0, 0)] == ["hook", "hook"]


@pytest.mark.parametrize("compat", ["4.9", "5.x"])
@pytest.mark.parametrize("common", [None, {"of": "all"}, {"INNER_MULTI_DISPATCH": "%LMQ%b"}])
def test_a_batch_is_in_its_light_queues(tmp_path, compat, common):
    batch = encode_batch([{"body": b"%d" % i, "properties": {"INNER_MULTI_DISPATCH": "%LMQ%a",
                                                             "INNER_MULTI_QUEUE_OFFSET": "9"} if i % 2 else {"p": "1"}}
                          for i in range(6)], compat)
    with MessageStore.open(tmp_path, compat=compat, **SMALL) as s:
        s.put("T", b"first", light_queues=["a"])
        s.put_batch("T", batch, properties=common)
        assert s.wait_dispatched(10)
        by_batch = common is not None and "of" not in common
        found = [m.properties for m in s.get("T", 0, 1)]
        assert all(p.get("p") == ("1" if i % 2 == 0 else None) for i, p in enumerate(found))
        if by_batch:        # the last one of a name counts
            assert bodies(s) == [b"first"] and bodies(s, "%LMQ%b") == [b"%d" % i for i in range(6)]
        else:
            assert bodies(s) == [b"first", b"1", b"3", b"5"]
            assert places(s)[1:] == [None, "1", None, "2", None, "3"]
        assert not common or by_batch or all(p["of"] == "all" for p in found)
        assert s.put("T", b"last", light_queues=["a"]) and s.wait_dispatched(10) and bodies(s)[-1] == b"last"
    assert list(verify(tmp_path, compat=compat, **SMALL)) == []


def source(path, count=5):
    with MessageStore.open(path, **SMALL) as s:
        for i in range(count):
            s.put("T", b"new %d" % i, light_queues=["a", "b"] if i % 2 else ["a"], queue_id=i % 2)
        s.put("T", b"plain", properties={"INNER_MULTI_DISPATCH": "%LMQ%a"}, sys_flag=0x4)       # a half message is in none
        assert s.wait_dispatched(10)


@pytest.mark.untraced       # a copy writes through an I/O table of its own
def test_a_copy_continues_the_light_queues_of_the_target(tmp_path):
    source(tmp_path / "from")
    with MessageStore.open(tmp_path / "to", **SMALL) as s:
        for i in range(3):
            s.put("T", b"old %d" % i, light_queues=["a"])
        s.put("T", b"odd", properties={"p": "INNER_MULTI_DISPATCH"})
    copy_messages(tmp_path / "from", tmp_path / "to", **SMALL)
    with MessageStore.open(tmp_path / "to", **SMALL) as s:
        assert bodies(s) == [b"old 0", b"old 1", b"old 2"] + [b"new %d" % i for i in range(5)]
        assert bodies(s, "%LMQ%b") == [b"new 1", b"new 3"]
        assert places(s) == ["0", "1", "2", None, "3", "5", "7"] and places(s, 1) == ["4,0", "6,1"]
        s.put("T", b"then", light_queues=["b", "a"])
        assert s.wait_dispatched(10) and places(s)[-1] == "2,8" and bodies(s)[-1] == b"then"
    assert list(verify(tmp_path / "to", **SMALL)) == []


def test_a_copy_as_it_is_keeps_the_places(tmp_path):
    source(tmp_path / "from")
    copy_messages(tmp_path / "from", tmp_path / "to", as_is=True, **SMALL)
    with MessageStore.open(tmp_path / "to", **SMALL) as s:
        assert bodies(s) == [b"new %d" % i for i in range(5)] and places(s, 1) == ["1,0", "3,1"]
        assert s.put("U", b"between", light_queues=["a"]) and s.wait_dispatched(10) and bodies(s)[-1] == b"between"
    with MessageStore.open(tmp_path / "from", **SMALL) as s:
        s.put("T", b"more", light_queues=["a"])
    with pytest.raises(errors.StoreStateError, match="light queues"):
        copy_messages(tmp_path / "from", tmp_path / "to", as_is=True, **SMALL)


def test_names_that_no_put_takes_are_in_no_light_queue_of_the_copy(tmp_path):
    off = SMALL | {"enable_multi_dispatch": False}
    with MessageStore.open(tmp_path / "from", **off) as s:
        s.put("T", b"odd", properties={"INNER_MULTI_DISPATCH": "%LMQ%a,b", "INNER_MULTI_QUEUE_OFFSET": "7,0"})
        s.put("T", b"good", properties={"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "8"})
    copy_messages(tmp_path / "from", tmp_path / "to", **SMALL)
    with MessageStore.open(tmp_path / "to", **SMALL) as s:
        assert bodies(s) == [b"good"] and places(s) == [None, "0"]


@pytest.mark.untraced       # a copy writes through an I/O table of its own
def test_a_copy_that_was_killed_brings_each_message_over_once(tmp_path, memory_disk):
    source(tmp_path / "from", 30)
    seen = 0
    for nth in range(3, 200, 9):
        to = memory_disk / f"to{nth}"
        with MessageStore.open(to, **SMALL) as s:
            s.put("T", b"old", light_queues=["a"])
        io = ProbeIo(keep_bytes=False)
        io.freeze("mutate", nth)
        try:
            copy_messages(tmp_path / "from", to, _io=io, **SMALL)
        except (errors.RmqStoreError, OSError):
            pass
        seen += io.frozen
        copy_messages(tmp_path / "from", to, **SMALL)
        with MessageStore.open(to, **SMALL) as s:
            assert bodies(s) == [b"old"] + [b"new %d" % i for i in range(30)], nth
            assert s.max_offset("%LMQ%a", 0) == 31 and s.max_offset("%LMQ%b", 0) == 15, nth
        if not io.frozen:
            break
    assert seen > 2
