"""Light queues that this library writes: put, dispatch, reading, limits."""
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from rmq_store import MessageStore, errors
from rmq_store.services.integrity.verification import verify

SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 2000, "index_slots": 100, "index_entries_max": 1000,
         "enable_lmq": True, "enable_multi_dispatch": True}


def bodies(store, topic):
    return [bytes(m.body) for m in store.get(topic, 0, 0)]


@pytest.mark.parametrize("compat", ["4.9", "5.x"])
@pytest.mark.parametrize("crc", [False, True])
def test_a_message_is_in_all_its_queues(tmp_path, compat, crc):
    with MessageStore.open(tmp_path, compat=compat, record_crc=crc and compat == "5.x", **SMALL) as s:
        for i in range(12):
            s.put("T", b"%d" % i, queue_id=3, tags="x", light_queues=["a"] if i % 2 else ["a", "%LMQ%b"], properties={"p": "1"})
        s.put("T", b"plain", queue_id=3)
        assert s.wait_dispatched(10)
        assert bodies(s, "%LMQ%a") == [b"%d" % i for i in range(12)]
        assert bodies(s, "%LMQ%b") == [b"%d" % i for i in range(0, 12, 2)]
        assert s.max_offset("%LMQ%a", 0) == 12 and s.max_offset("T", 3) == 13
        last = s.get("T", 3, 10)[0].properties
        assert last["INNER_MULTI_DISPATCH"] == "%LMQ%a,%LMQ%b" and last["INNER_MULTI_QUEUE_OFFSET"] == "10,5"
        assert last["p"] == "1" and last["TAGS"] == "x"
        assert [m.queue_offset for m in s.get("%LMQ%a", 0, 0, tags="x")] == list(range(12))
    assert list(verify(tmp_path, compat=compat, **SMALL)) == []


def test_the_property_does_what_the_argument_does(tmp_path):
    with MessageStore.open(tmp_path, **SMALL) as s:
        for i in range(3):      # another record's offsets are replaced
            s.put("T", b"%d" % i, properties={"INNER_MULTI_QUEUE_OFFSET": "77", "INNER_MULTI_DISPATCH": "%LMQ%a", "z": "1"})
        assert s.put_async("T", b"3", light_queues=["a"]).result().status.stored
        assert s.wait_dispatched(10)
        assert bodies(s, "%LMQ%a") == [b"0", b"1", b"2", b"3"]
        assert [m.properties["INNER_MULTI_QUEUE_OFFSET"] for m in s.get("T", 0, 0)] == ["0", "1", "2", "3"]


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("lost", [False, True])
def test_an_open_fills_light_queues_once(tmp_path, crashed, lost):
    with MessageStore.open(tmp_path, **SMALL) as s:
        for i in range(300):
            s.put("T", b"%d" % i, light_queues=["a", "b"] if i % 3 == 0 else ["a"])
    if lost:        # the directory, as a copy without it
        path = tmp_path / "consumequeue" / "%LMQ%b" / "0"
        for name in os.listdir(path):
            (path / name).unlink()
    for life in range(3):
        if crashed:
            (tmp_path / "abort").touch()
            (tmp_path / "checkpoint").unlink(missing_ok=True)
        if lost and not crashed:
            continue        # after a stop in order nothing is looked for behind the newest entry
        with MessageStore.open(tmp_path, **SMALL) as s:
            assert s.max_offset("%LMQ%a", 0) == 300 + life
            assert s.max_offset("%LMQ%b", 0) == 100 + life
            s.put("T", b"new%d" % life, light_queues=["b", "a"])
            assert s.wait_dispatched(10)
            assert bodies(s, "%LMQ%b")[-1] != b"" and s.max_offset("%LMQ%b", 0) == 101 + life
            found = s.get("%LMQ%b", 0, 100 + life)
            assert [bytes(m.body) for m in found] == [b"new%d" % life]


def test_a_record_of_another_offset_list_is_passed_over(tmp_path):
    names = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}
    off = SMALL | {"enable_multi_dispatch": False}
    with MessageStore.open(tmp_path, **off) as s:
        for offsets in ("0", "0,x", "-1,0", "99999999999999999999,1", ",,", "0,1,2"):
            s.put("T", b"odd", properties=names | {"INNER_MULTI_QUEUE_OFFSET": offsets})
    (tmp_path / "abort").touch()
    (tmp_path / "checkpoint").unlink()
    for path in (tmp_path / "consumequeue").glob("*/*/*"):
        path.unlink()
    with MessageStore.open(tmp_path, **SMALL) as s:
        assert s.max_offset("T", 0) == 6
        assert s.max_offset("%LMQ%a", 0) == 1 and s.max_offset("%LMQ%b", 0) in (1, 2)


BAD = [
    (["a,b"], errors.MessageIllegal, "comma"), ("a", errors.MessageIllegal, "give a list"),
    ([""], errors.MessageIllegal, "not empty"), (["%LMQ%"], errors.MessageIllegal, "not empty"),
    ([1], errors.MessageIllegal, "give each as a str"), (7, errors.MessageIllegal, "give a list"),
    (["a/b"], errors.MessageIllegal, "only the characters"), (["\udcff"], errors.MessageIllegal, "only the characters"),
    (["a", "%LMQ%a"], errors.MessageIllegal, "twice"), (["a" * 251], errors.MessageIllegal, "255"),
    ([f"{i}-{'x' * 200}" for i in range(200)], errors.PropertiesSizeExceeded, "32767"),
]


@pytest.mark.parametrize(("names", "error", "says"), BAD)
def test_bad_names(tmp_path, names, error, says):
    with MessageStore.open(tmp_path, **SMALL) as s:
        with pytest.raises(error, match=says):
            s.put("T", b"x", light_queues=names)
        assert s.max_offset("T", 0) == 0 and s.put("T", b"y", light_queues=["a"]).queue_offset == 0


def test_what_has_no_light_queues(tmp_path):
    with MessageStore.open(tmp_path / "off") as s:
        with pytest.raises(errors.ServiceNotAvailable, match="enable_lmq"):
            s.put("T", b"x", light_queues=["a"])
        assert s.put("T", b"x", light_queues=[]).queue_offset == 0
    with MessageStore.open(tmp_path / "on", **SMALL) as s:
        with pytest.raises(errors.MessageIllegal, match="delay level"):
            s.put("T", b"x", light_queues=["a"], delay_level=1)
        with pytest.raises(errors.MessageIllegal, match="no light queue"):
            s.put("%RETRY%g", b"x", light_queues=["a"])
        with pytest.raises(errors.MessageIllegal, match="two names"):
            s.put("T", b"x", light_queues=["a"], properties={"INNER_MULTI_DISPATCH": "%LMQ%b"})
        with pytest.raises(errors.MessageIllegal, match="begin each name"):
            s.put("T", b"x", properties={"INNER_MULTI_DISPATCH": "b"})
        assert s.put("%RETRY%g", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "0"})
        assert s.wait_dispatched(10) and s.max_offset("%LMQ%a", 0) == 0


def test_the_number_of_light_queues_is_bounded(tmp_path):
    for _ in range(2):
        with MessageStore.open(tmp_path, lmq_count_max=3, **SMALL) as s:
            s.put("T", b"x", light_queues=["a", "b"])
            s.put("T", b"x", light_queues=["c"])
            with pytest.raises(errors.LmqConsumeQueueNumExceeded, match="3 with 1 more") as caught:
                s.put("T", b"x", light_queues=["a", "d"])
            assert caught.value.status.name == "LMQ_CONSUME_QUEUE_NUM_EXCEEDED"
            assert s.wait_dispatched(10) and "%LMQ%d" not in s.topics()


@pytest.mark.parametrize("refused", [
    lambda s: s.put("T", b"x" * (1 << 20), light_queues=["a", "b", "c"]),
    lambda s: s.put("T", b"x", properties={"p": "x" * 32_700}, light_queues=["a", "b", "c"]),
    lambda s: s.put_many("T", [{"body": b"x", "light_queues": ["a", "b"]}, {"body": b"x" * (1 << 20), "light_queues": ["c"]}]),
    lambda s: s.put_many("T", [{"body": b"x", "light_queues": ["a", "b", "c", "d"]}]),
    lambda s: s.put("T", b"x", light_queues=["a", "b", "c", "d"])])
def test_a_refused_put_makes_no_light_queues(tmp_path, refused):
    with MessageStore.open(tmp_path, lmq_count_max=3, **SMALL) as s:
        for _ in range(3):
            with pytest.raises(errors.PutError):
                refused(s)
        s.put("T", b"x", light_queues=["d", "e"])
        with pytest.raises(errors.PutError):
            refused(s)
        s.put("T", b"x", light_queues=["a", "d"])       # in the table since it was refused
        with pytest.raises(errors.LmqConsumeQueueNumExceeded, match="3 with 1 more"):
            s.put("T", b"x", light_queues=["b"])
        assert s.wait_dispatched(10) and s.max_offset("%LMQ%a", 0) == 1 and s.max_offset("%LMQ%d", 0) == 2


def test_a_deleted_light_queue_makes_room_for_another(tmp_path):
    with MessageStore.open(tmp_path, lmq_count_max=3, **SMALL) as s:
        s.put("T", b"x", light_queues=["a", "b", "c"])
        assert s.wait_dispatched(10)
        s.delete_topics("%LMQ%b")
        s.put("T", b"x", light_queues=["d"])
        with pytest.raises(errors.LmqConsumeQueueNumExceeded, match="3 with 1 more"):
            s.put("T", b"x", light_queues=["b"])
        assert s.wait_dispatched(10)
        s.delete_topics("%LMQ%a", "%LMQ%d")
        s.put("T", b"x", light_queues=["b", "d"])
        with pytest.raises(errors.LmqConsumeQueueNumExceeded, match="3 with 1 more"):
            s.put("T", b"x", light_queues=["a"])


def test_threads_that_name_the_same_new_queues_count_them_once(tmp_path):
    # A put counts its new names from before it appends until it is refused: four of them at most, one a thread.
    with MessageStore.open(tmp_path, lmq_count_max=204, **SMALL | {"segment_size_bytes": 1 << 22}) as s:
        def run(number):
            for i in range(200):
                names = [f"q{i}", f"q{(i * 7) % 200}"] if i * 7 % 200 != i else [f"q{i}"]
                s.put("T", b"x", light_queues=names)
                with pytest.raises(errors.PutError):
                    s.put("T", b"x" * (1 << 23), light_queues=[f"q{199 - i}", f"odd{number}"])

        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(run, number) for number in range(4)]:
                done.result()
        s.put("T", b"x", light_queues=["a", "b", "c", "d"])
        with pytest.raises(errors.LmqConsumeQueueNumExceeded, match="204 with 1 more"):
            s.put("T", b"x", light_queues=["one"])
        assert s.wait_dispatched(10)
        s.delete_topics("%LMQ%q0")
        s.put("T", b"x", light_queues=["one"])


def test_a_light_queue_is_removed_and_begins_anew(tmp_path):
    with MessageStore.open(tmp_path, **SMALL) as s:
        for i in range(5):
            s.put("T", b"%d" % i, light_queues=["a"])
        assert s.wait_dispatched(10)
        s.delete_topics("%LMQ%a")
        assert s.max_offset("T", 0) == 5
        s.put("T", b"new", light_queues=["a"])
        assert s.wait_dispatched(10) and bodies(s, "%LMQ%a") == [b"new"]
    (tmp_path / "abort").touch()
    (tmp_path / "checkpoint").unlink()
    with MessageStore.open(tmp_path, **SMALL) as s:
        assert bodies(s, "%LMQ%a") == [b"new"] and s.max_offset("T", 0) == 6


def test_a_follower_and_a_waiting_reader_see_it(tmp_path):
    with MessageStore.open(tmp_path, **SMALL) as s:
        s.put("T", b"0", light_queues=["a"])
        assert [bytes(m.body) for m in s.get("%LMQ%a", 0, 0, wait=10)] == [b"0"]
        with MessageStore.open(tmp_path, readonly=True, follow=True) as reader:
            s.put("T", b"1", light_queues=["a"])
            assert [bytes(m.body) for m in reader.get("%LMQ%a", 0, 1, wait=10)] == [b"1"]


def test_a_transaction_reaches_its_light_queues_with_its_commit(tmp_path):
    with MessageStore.open(tmp_path, **SMALL) as s:
        for body, ends in ((b"yes", "commit"), (b"no", "rollback")):
            half = s.prepare("T", body, group="g", properties={"INNER_MULTI_DISPATCH": "%LMQ%a"})
            assert s.wait_dispatched(10) and s.max_offset("%LMQ%a", 0) == (ends == "rollback")
            getattr(half, ends)()
        assert s.wait_dispatched(10) and bodies(s, "%LMQ%a") == [b"yes"]


@pytest.mark.parametrize("count", [2_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_many_light_queues_cost_no_descriptor(tmp_path, count):
    """Counted: open descriptors, while the queues are there and all have their entry."""
    names = [f"{i:06d}" for i in range(count)]
    sizes = SMALL | {"segment_size_bytes": 1 << 24}
    with MessageStore.open(tmp_path, consumequeue_fd_max=64, lmq_count_max=200_000, **sizes) as s:
        before = len(os.listdir("/proc/self/fd"))
        for begin in range(0, count, 500):
            s.put("T", b"x", light_queues=names[begin:begin + 500])
        assert s.wait_dispatched(600)
        assert len(os.listdir("/proc/self/fd")) <= before + 64 + 8
        assert all(s.max_offset(f"%LMQ%{name}", 0) == 1 for name in names)
        assert s.get("T", 0, 0)[0].properties["INNER_MULTI_QUEUE_OFFSET"] == ",".join(["0"] * 500)
