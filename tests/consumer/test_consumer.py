"""The consumer: every message at least once, none passed over; failed ones again, then as dead letters, as a broker does it."""
import errno
import logging
import random
import threading
import time

import pytest

from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from rmq_store.services.consumer.consumer import origin_topic
from rmq_store.services.consumer.counts import GroupCounts
from tests.soon import until

# store_only: what is tried again is there at once.
SMALL = {"segment_size_bytes": 1 << 16, "index_enabled": False, "consumequeue_file_size_bytes": 200, "delay": "store_only"}


@pytest.fixture
def store(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        yield s


def fill(store, count, topic="T", queues=1, tags=None):
    for i in range(count):
        store.put(topic, b"%d" % i, queue_id=i % queues, tags=tags and tags[i % len(tags)])
    assert store.wait_dispatched(30)


def bodies(batch):
    return [int(bytes(m.body)) for m in batch]


def drain(consumer, count=32, timeout=0.0):
    found = []
    while (batch := consumer.poll(count, timeout)) is not None:
        with batch:
            found += bodies(batch)
    return found


# ---- handing out and remembering

def test_a_group_goes_on_where_it_was(tmp_path, store):
    fill(store, 10)
    with store.consumer("G", "T") as c:
        assert drain(c, 4) == list(range(10))
    store.close()
    with MessageStore.open(tmp_path / "s", **SMALL) as again:
        fill(again, 2)
        with again.consumer("G", "T") as c:
            assert drain(c) == [0, 1]
        with again.consumer("other", "T") as c:
            assert len(drain(c)) == 12


def test_what_is_not_acknowledged_is_handed_out_again(store):
    fill(store, 6)
    with store.consumer("G", "T") as c:
        first, second, third = c.poll(2), c.poll(2), c.poll(2)
        assert [bodies(b) for b in (first, second, third)] == [[0, 1], [2, 3], [4, 5]] and c.poll() is None
        third.ack()
        first.ack()
        first.ack()
        assert store.offsets.query("G", "T", 0) == 2        # never past what is still out
        second.nack()
        assert bodies(c.poll(1)) == [2]                     # not acknowledged
        assert store.offsets.query("G", "T", 0) == 2
    with store.consumer("G", "T") as c:
        assert drain(c) == [2, 3, 4, 5]
    assert store.offsets.query("G", "T", 0) == 6


def test_a_batch_is_given_back_when_its_block_fails(store):
    fill(store, 3)
    with store.consumer("G", "T") as c:
        with pytest.raises(ZeroDivisionError), c.poll():
            raise ZeroDivisionError
        assert drain(c) == [0, 1, 2]


def test_queues_and_topics_take_turns(store):
    fill(store, 8, queues=2)
    fill(store, 4, topic="U")
    with store.consumer("G", ["T", "U"]) as c:
        seen = [(b.topic, b.queue_id) for b in iter(lambda: c.poll(2), None)]
    assert sorted(seen) == [("T", 0)] * 2 + [("T", 1)] * 2 + [("U", 0)] * 2 and len(set(seen[:3])) == 3


def test_tags_and_what_they_leave_out(store):
    fill(store, 200, tags=["a", "b", "c"])
    with store.consumer("G", "T", tags="b || c") as c:
        assert drain(c) == [i for i in range(200) if i % 3]
        assert store.offsets.query("G", "T", 0) == 200
        fill(store, 1, tags=["a"])
        assert c.poll() is None and store.offsets.query("G", "T", 0) == 201


def test_start(store):
    fill(store, 3)
    with store.consumer("late", "T", start="last") as c, store.consumer("early", "T") as d:
        assert drain(c) == [] and drain(d) == [0, 1, 2]
        fill(store, 2, queues=2)            # queue 1 is new: all of it is to be consumed
        assert sorted(drain_all(c, 2)) == [0, 1]


def drain_all(consumer, count):
    found = []
    while len(found) < count:
        with consumer.poll(timeout=30) as batch:
            found += bodies(batch)
    return found


def test_ordered_hands_out_one_batch_of_a_queue(store):
    fill(store, 4)
    with store.consumer("G", "T", ordered=True) as c:
        batch = c.poll(2)
        assert c.poll(2) is None
        batch.ack()
        assert bodies(c.poll(2)) == [2, 3]


def test_waiting_is_woken_by_a_put_a_close_and_the_store(store):
    c = store.consumer("G", "T")
    got = []
    waiters = [threading.Thread(target=lambda: got.append(c.poll(timeout=None))) for _ in range(2)]
    for w in waiters:
        w.start()
    store.put("T", b"1")
    store.put("T", b"2", queue_id=5)
    for w in waiters:
        w.join(60)
    assert sorted(n for b in got for n in bodies(b)) == [1, 2] or len(got) == 2
    ended = []

    def until_closed():
        try:
            while True:
                c.poll(timeout=None)
        except errors.StoreStateError as error:
            ended.append(str(error))

    waiter = threading.Thread(target=until_closed)
    waiter.start()
    time.sleep(0.01)        # whether it waits already makes no difference
    c.close()
    waiter.join(60)
    assert ended == ["the consumer of group G is closed: make another one with store.consumer"]
    got.clear()


# ---- failures

def test_a_read_that_fails_loses_nothing_that_was_given_back(tmp_path):
    io = ProbeIo(keep_bytes=False)
    with MessageStore.open(tmp_path / "s", _io=io, **SMALL) as s, s.consumer("G", "T") as c:
        fill(s, 6)
        c.poll(4).nack()
        io.fail("pread", errno=errno.EIO, path="/consumequeue/T/")
        with pytest.raises(OSError, match=r"[Ii]nput/output"):
            c.poll(2)
        assert s.offsets.query("G", "T", 0) <= 0
        assert drain(c) == [0, 1, 2, 3, 4, 5]
        assert s.offsets.query("G", "T", 0) == 6


class Failing(GroupCounts):
    """Counts that cannot be taken: whatever fails behind a get, the messages that it found are not lost."""

    fails = True

    def got(self, *arguments):
        if self.fails:
            raise MemoryError("counts")
        super().got(*arguments)


@pytest.mark.parametrize("again", [False, True], ids=["new", "given back"])
def test_what_fails_behind_a_read_loses_nothing(store, again):
    fill(store, 6)
    with store.consumer("G", "T") as c:
        if again:
            c.poll(4).nack()
        queue = c._queues["T", 0]
        queue.counts = Failing("G", "T")
        with pytest.raises(MemoryError):
            c.poll(2)
        queue.counts.fails = False
        assert drain(c) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("settle", ["ack", "nack"])
def test_a_batch_whose_settling_fails_can_be_settled_again(store, settle, monkeypatch):
    fill(store, 4)
    with store.consumer("G", "T") as c:
        batch = c.poll(2)
        with monkeypatch.context() as m:
            m.setattr(c._offsets, "commit", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                getattr(batch, settle)()
        getattr(batch, settle)()
        assert store.offsets.query("G", "T", 0) == (2 if settle == "ack" else 0)
        assert drain(c) == ([2, 3] if settle == "ack" else [0, 1, 2, 3])


def test_a_failed_message_comes_again_with_a_brokers_properties(store):
    store.put("T", b"7", tags="x", keys="k", properties={"UNIQ_KEY": "U1", "color": "red", "WAIT": "true"}, flag=3)
    store.wait_dispatched(30)
    with store.consumer("G", "T") as c:
        with c.poll() as batch:
            origin = batch[0].msg_id
            born = batch[0].born_timestamp
            assert batch.retry(batch[0]) == "%RETRY%G"
        with c.poll(timeout=30) as batch:
            m = batch[0]
            assert (m.topic, m.queue_id, m.reconsume_times, m.flag, m.tags, m.keys) == ("%RETRY%G", 0, 1, 3, "x", "k")
            assert m.born_timestamp == born and origin_topic(m) == "T" and m.unique_key == "U1"
            assert {k: m.properties[k] for k in ("RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "RECONSUME_TIME", "color")} \
                == {"RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": origin, "RECONSUME_TIME": "1", "color": "red"}
            assert "WAIT" not in m.properties
            batch.retry(m)
            del m
        with c.poll(timeout=30) as batch:
            assert batch[0].reconsume_times == 2 and batch[0].properties["ORIGIN_MESSAGE_ID"] == origin
            assert batch[0].properties["RETRY_TOPIC"] == "T" and batch[0].properties["RECONSUME_TIME"] == "2"
        del batch


def test_after_the_last_retry_a_dead_letter(store, caplog):
    store.group_table.set("G", retryMaxTimes=2)
    fill(store, 1)
    with store.consumer("G", "T") as c:
        times = []
        while (batch := c.poll(timeout=1.0)) is not None:
            with batch:
                times.append(batch[0].reconsume_times)
                batch.retry(batch[0])
        assert times == [0, 1, 2]
    dead, = store.get("%DLQ%G", 0, 0)
    assert bytes(dead.body) == b"0" and dead.reconsume_times == 3
    assert dead.properties["DLQ_ORIGIN_TOPIC"] == dead.properties["RETRY_TOPIC"] == "T"
    assert dead.properties["DLQ_ORIGIN_MESSAGE_ID"] == store.get("T", 0, 0)[0].msg_id
    assert [r.fields["to"] for r in caplog.records if r.event == "DEAD_LETTER"] == ["%DLQ%G"]
    assert store.topic_table.names() == ["%DLQ%G", "%RETRY%G"]


def test_a_retry_of_something_else_is_refused_by_name(store):
    store.put("T", b"x")
    store.wait_dispatched(timeout=60)
    with store.consumer("g", "T") as consumer:
        batch = consumer.poll(timeout=60)
        for wrong in (5, None, batch, b"x"):
            with pytest.raises(errors.ArgumentIllegal, match=r"message is .*: give a message that the consumer handed out"):
                batch.retry(wrong)
        for level in ("2", None, 1.5):
            with pytest.raises(errors.ArgumentIllegal, match=r"delay_level is .*: give a whole number"):
                batch.retry(batch[0], delay_level=level)


def test_a_retry_waits_as_long_as_a_brokers(tmp_path):
    """Level 3 + the times it was tried, or the one that is given, and never beyond the last; then it comes to %RETRY%."""
    probe = ProbeIo(keep_bytes=False)
    now = 1_795_000_000_000
    probe.set_clock(now, 0)
    with MessageStore.open(tmp_path / "s", _io=probe, **SMALL | {"delay": "deliver"}) as s, s.consumer("G", "T") as c:
        fill(s, 1)
        levels = []
        for asked in (0, 0, 1, 99, 0):
            with c.poll(timeout=30) as batch:
                assert batch.retry(batch[0], delay_level=asked) == "%RETRY%G"
                batch = None
            assert s.wait_dispatched(30) and c.poll() is None
            until(lambda: sum(x.waiting for x in s.delay_levels()) == 1)     # the timer counts after it has delivered
            (waits,) = [x for x in s.delay_levels() if x.waiting]
            levels.append(waits.level)
            now += waits.delay_ms
            probe.set_clock(now, 0)
            s._delay.timer.poke()
        assert levels == [3, 4, 1, 18, 7]
        with c.poll(timeout=30) as batch:
            assert (batch.topic, batch[0].reconsume_times, origin_topic(batch[0])) == ("%RETRY%G", 5, "T")
            batch = None


def test_negative_level_is_a_dead_letter_at_once(store):
    fill(store, 1)
    with store.consumer("G", "T") as c, c.poll() as batch:
        assert batch.retry(batch[0], delay_level=-1) == "%DLQ%G"


def test_run_retries_what_raises(store, caplog):
    caplog.set_level(logging.WARNING, logger="rmq_store")
    fill(store, 20)
    stop, seen = threading.Event(), []
    fails = {3: 1, 7: 2, 11: 99}

    def handle(message):
        number = int(bytes(message.body))
        if fails.get(number, 0) > message.reconsume_times:
            raise RuntimeError(f"no {number}")
        seen.append(number)
        if len(seen) == 19 and dead():
            stop.set()

    def dead():
        return store.max_offset("%DLQ%G", 0) == 1

    with store.consumer("G", "T", max_retries=3) as c:
        worker = threading.Thread(target=c.run, args=(handle,), kwargs={"stop": stop})
        worker.start()
        while not (len(seen) == 19 and dead()):
            time.sleep(0.01)
        stop.set()
        worker.join(60)
    assert sorted(seen) == [i for i in range(20) if i != 11]
    assert [bytes(m.body) for m in store.get("%DLQ%G", 0, 0)] == [b"11"]
    failed = [r.fields for r in caplog.records if r.event == "MESSAGE_FAILED"]
    assert len(failed) == 1 + 2 + 4 and failed[0]["error"] == "RuntimeError: no 3" and failed[0]["topic"] == "T"
    assert store.lag("G", "T")[0].behind == 0


def test_many_threads_share_one_consumer(store):
    fill(store, 600, queues=3)
    seen, lock = [], threading.Lock()
    with store.consumer("G", "T") as c:
        def work():
            while (batch := c.poll(7)) is not None:
                with batch, lock:
                    seen.extend(bodies(batch))

        threads = [threading.Thread(target=work) for _ in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
    assert sorted(seen) == list(range(600))
    assert [x.behind for x in store.lag("G", "T")] == [0, 0, 0]


def test_a_close_that_fails_can_be_called_again(tmp_path):
    io = ProbeIo(keep_bytes=False)
    with MessageStore.open(tmp_path / "s", _io=io, **SMALL) as s:
        fill(s, 2)
        c = s.consumer("G", "T")
        c.poll(1).ack()
        io.fail("rename", errno=errno.EIO, path="/config/")
        with pytest.raises(OSError, match=r"[Ii]nput/output"):
            c.close()
        c.close()
        assert '"T@G":{0:1' in (tmp_path / "s/config/consumerOffset.json").read_text()


# ---- limits and odd places

def test_one_open_consumer_a_group(store):
    fill(store, 1)
    c = store.consumer("G", "T")
    with pytest.raises(errors.StoreStateError, match="has an open consumer"):
        store.consumer("G", "T")
    with pytest.raises(errors.StoreStateError, match="has an open consumer"):
        store.reset_offset("G", "T", offset=0)
    c.close()
    c.close()
    store.consumer("G", "T").close()


@pytest.mark.parametrize(("arguments", "words"), [
    (("a@b", "T"), "group is 'a@b'"), (("", "T"), "group is ''"), (("G" * 121, "T"), "up to 120 characters"),
    (("G", []), "topics is empty"), (("G", "a/b"), "topic is 'a/b'"), (("G", [7]), "topic is 7")])
def test_names_that_cannot_be(store, arguments, words):
    with pytest.raises(errors.ArgumentIllegal, match=words):
        store.consumer(*arguments)


def test_wrong_ids_and_offsets_have_a_type_and_a_cure(store):
    with pytest.raises(errors.ArgumentIllegal, match=r"message id 'zz' is not 32 or 56 .*: give the message_id of a put"):
        store.message_by_id("zz")
    for wrong in (("g@", "T", 0, 0), ("G", "", 0, 0), ("G", "T", -1, 0), ("G", "T", 0, "1")):
        with pytest.raises(errors.ArgumentIllegal, match="give a n"):
            store.offsets.commit(*wrong)


def test_other_bad_arguments(store):
    for more in ({"start": "middle"}, {"max_retries": -1}):
        with pytest.raises(ValueError, match=next(iter(more))):
            store.consumer("G", "T", **more)
    with store.consumer("G", "T") as c:
        for bad in (-1, "1", float("nan")):
            with pytest.raises(ValueError, match=f"timeout is {bad!r}: give seconds"):
                c.poll(timeout=bad)


def test_a_committed_offset_beyond_the_end_goes_back_to_it(store, caplog):
    fill(store, 3)
    store.offsets.commit("G", "T", 0, 99)
    with store.consumer("G", "T") as c:
        assert c.poll() is None and store.offsets.query("G", "T", 0) == 3
        fill(store, 1)
        assert drain(c) == [0]
    assert [r.fields["offset"] for r in caplog.records if r.event == "OFFSET_BEYOND_END"] == [99]


def test_deleted_messages_are_skipped(tmp_path):
    with MessageStore.open(tmp_path / "s", **(SMALL | {"segment_size_bytes": 8192})) as s:
        for i in range(6):
            s.put("T", b"%d" % i + b" " * 7000)
        s.wait_dispatched(30)
        s.flush()
        with s.consumer("G", "T") as c:
            c.poll(1).ack()
            assert s.clean(0).lost[0].count == 1
            assert drain(c) == [5]
            assert s.lag("G", "T")[0].lost == 0


# ---- setting back and looking

def test_reset_and_lag(store):
    fill(store, 10, queues=2)
    with store.consumer("G", "T") as c:
        drain(c)
    times = [m.store_timestamp for m in store.scan("T", 0)]
    assert store.reset_offset("G", "T", timestamp=times[0]) == {0: 0, 1: 0}
    assert [(x.queue_id, x.offset, x.behind) for x in store.lag("G", "T")] == [(0, 0, 5), (1, 0, 5)]
    assert store.reset_offset("G", "T", timestamp=-1) == {0: 5, 1: 5}
    assert store.reset_offset("G", "T", timestamp=times[4] + 1_000_000) == {0: 5, 1: 5}
    assert store.reset_offset("G", "T", offset=2, queue_id=1) == {1: 2}
    assert [x.behind for x in store.lag(topic="T")] == [0, 3]
    for bad, words in (({"offset": 6}, "goes from 0 to 5"), ({"offset": -1}, "goes from 0 to 5"), ({}, "either"),
                       ({"offset": 0, "timestamp": 0}, "either"), ({"offset": 0, "queue_id": 9}, "has the queues 0, 1"),
                       ({"timestamp": -2}, "timestamp is -2: give ms since 1970")):
        with pytest.raises(ValueError, match=words):
            store.reset_offset("G", "T", **bad)
    with pytest.raises(ValueError, match="no queue of it"):
        store.reset_offset("G", "none", offset=0)


# ---- against a plain model, with kills

@pytest.mark.parametrize("seed", range(4))
def test_model_with_kills(tmp_path, seed):
    """Random work in several lives, each ended by a kill: nothing that is in the log is passed over, nothing below a written
    offset comes again, and retries end as deliveries or dead letters."""
    rnd = random.Random(seed)
    root, put, handled, written = tmp_path / "s", set(), set(), {}
    for life in range(5):
        probe = ProbeIo(keep_bytes=False)
        store = MessageStore.open(root, _io=probe, write_path=rnd.choice(["mmap", "pool"]), **SMALL)
        consumer = store.consumer("G", ["T", "U"], max_retries=2)
        work(consumer, rnd, store, handled, put, written, life * 1000)
        store.offsets.flush()
        written = store.offsets.table()
        work(consumer, rnd, store, handled, put, written, life * 1000 + 500)        # of this no offset is written
        probe.freeze()
        consumer.close()
        store.close()
        with MessageStore.open(root, readonly=True, **SMALL) as store:
            put &= {int(bytes(m.body)) for m in store.scan()}
    with MessageStore.open(root, **SMALL) as store, store.consumer("G", ["T", "U"], max_retries=2) as consumer:
        handled |= set(drain(consumer, timeout=0.3))
        dead = {int(bytes(m.body)) for m in store.scan("%DLQ%G", 0)}
    assert put and put <= handled | dead, f"passed over: {sorted(put - handled - dead)}"


def work(consumer, rnd, store, handled, put, written, number):
    """Some steps: puts, batches that are given back, acknowledged, and partly tried again."""
    for step in range(25):
        what = rnd.random()
        if what < 0.4:
            store.put(rnd.choice("TU"), b"%d" % (number + step), queue_id=rnd.randrange(2))
            put.add(number + step)
            store.wait_dispatched(30)
        elif (batch := consumer.poll(rnd.randrange(1, 4))) is not None:
            done = written.get((batch.topic, "G"), {}).get(batch.queue_id, 0)
            assert batch[0].queue_offset >= done, f"{batch} comes again, {done} was written"
            if what < 0.5:
                batch.nack()
                continue
            for message in batch:
                if rnd.random() < 0.2:
                    batch.retry(message)
                else:
                    handled.add(int(bytes(message.body)))
            batch.ack()
