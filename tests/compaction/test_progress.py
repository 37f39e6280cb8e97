"""How far groups are in a compaction topic, and where they can be set: by what its compaction log has, too."""
import itertools
import json

import pytest

from rmq_store import Broker
from tests.broker.peer import Peer
from tests.compaction import model
from tests.compaction.test_damage import clean, made, put


@pytest.fixture
def store(tmp_path):
    """Offsets of which only the compaction log has some, with gaps, and the log the others."""
    with made(tmp_path / "s", 0) as store:
        for i in range(200):
            store.put("C", b"%d" % i, keys=f"u{i}" if i % 7 == 3 else f"k{i % 10}")
            if i % 50 == 0:
                store.flush()
                store.wait_dispatched(10)
                store.compact("C")
        assert clean(store) > 60
        offsets = [m.queue_offset for m in store.scan("C", 0)]
        assert offsets[0] > 0 and any(b - a > 1 for a, b in itertools.pairwise(offsets))
        yield store


def messages(store):
    return [(m.queue_offset, m.store_timestamp) for m in store.scan("C", 0)]


def bounds(there, high, when):
    """Where a search for a time leads: the first message of that time or later, and the last one of then or earlier."""
    lower = next((offset for offset, time in there if time >= when), high)
    upper = [offset for offset, time in there if time <= when]
    return lower, upper[-1] if upper else there[0][0]


def test_a_lag_is_what_a_consumer_gets(store):
    there, high = messages(store), store.max_offset("C", 0)
    for offset in (0, there[0][0], there[1][0] + 1, there[-1][0], high // 2, high):
        store.offsets.commit("G", "C", 0, offset)
        (lag,) = store.lag("G")
        assert (lag.behind, lag.lost, lag.min_offset, lag.max_offset) == (
            sum(at >= offset for at, _ in there), 0, there[0][0], high)
    store.offsets.commit("G", "C", 0, 0)
    with model.open_store(store.path, readonly=True) as reader:
        assert reader.lag("G") == [] or reader.lag("G")[0].behind == len(there)
    store.offsets.flush()
    with model.open_store(store.path, readonly=True) as reader:
        assert reader.lag("G")[0].behind == len(there) == reader.total("C", 0) == store.total("C", 0)
    with store.consumer("G", "C") as consumer:
        got = 0
        while (batch := consumer.poll()) is not None:
            got += len(batch)
            batch.ack()
            assert store.lag("G", "C")[0].behind == len(there) - got
    assert got == len(there)


def test_what_was_deleted_before_the_compaction_log_began_is_lost(tmp_path):
    with model.open_store(tmp_path / "s") as store:
        put(store, 0, 60)
        low = clean(store)
        store.topic_table.set_cleanup_policy("C", "COMPACTION")
        put(store, 60, 60)
        store._compactions.feed(store)
        assert clean(store) > low and store.min_offset("C", 0) == low
        store.offsets.commit("G", "C", 0, 1)
        (lag,) = store.lag("G")
        assert (lag.behind, lag.lost) == (120 - low, low - 1)


def test_cleaning_tells_of_no_loss_that_is_none(tmp_path, caplog):
    with made(tmp_path / "s") as store:
        store.offsets.commit("G", "C", 0, 0)
        assert store.clean(hours=0, pace_ms=0).lost == []
    assert "UNCONSUMED_DELETED" not in {getattr(record, "event", "") for record in caplog.records}


def test_offsets_by_time(store):
    there, high = messages(store), store.max_offset("C", 0)
    times = sorted({time for _, time in there})
    assert len(times) > 1
    for when in {0, *times, *(time + 1 for time in times), *(time - 1 for time in times), times[-1] + 1000}:
        lower, upper = bounds(there, high, when)
        assert store.offset_by_time("C", 0, when) == store.offset_by_time("C", 0, when, boundary="lower") == lower, when
        assert store.offset_by_time("C", 0, when, boundary="upper") == upper, when
        assert store.reset_offset("G", "C", timestamp=when) == {0: lower} and store.offsets.query("G", "C", 0) == lower
    assert store.earliest_time("C", 0) == there[0][1]


def test_the_whole_queue_is_in_the_compaction_log(tmp_path):
    with made(tmp_path / "s") as store:
        for i in range(60):
            store.put("other", b"x" * 200, keys=f"{i}")
        store.flush()
        store.wait_dispatched(10)
        store.compact("C")
        assert clean(store) == store.max_offset("C", 0) == 100
        there = messages(store)
        for when in (0, *(time + one for _, time in there for one in (0, 1))):
            lower, upper = bounds(there, 100, when)
            assert store.offset_by_time("C", 0, when) == lower
            assert store.offset_by_time("C", 0, when, boundary="upper") == upper
        store.offsets.commit("G", "C", 0, 0)
        assert store.lag("G")[0].behind == len(there)


def test_offsets_are_reset_to_what_can_be_read(store):
    first, high = messages(store)[0][0], store.max_offset("C", 0)
    for offset in (first, first + 1, high):
        assert store.reset_offset("G", "C", offset=offset, queue_id=0) == {0: offset}
    with pytest.raises(ValueError, match=f"goes from {first} to {high}"):
        store.reset_offset("G", "C", offset=first - 1)


def test_counts_with_filters(store):
    for key in range(20):
        store.put("C", b"x", keys=f"t{key}", tags="ab"[key % 2])
    store.flush()
    store.wait_dispatched(10)
    for i in range(3):
        put(store, 1000 * i, 60, keys=5)
        store.compact("C")
    clean(store)
    there = [(m.queue_offset, m.tags) for m in store.scan("C", 0)]
    assert there[0][0] < store._queues_of("C")[0][1] and ("b" in dict(there).values())
    high = store.max_offset("C", 0)
    for begin, end in ((0, high), (there[0][0] + 1, high), (0, there[-1][0]), (there[5][0], there[9][0])):
        expected = sum(tag == "b" for at, tag in there if begin <= at < end)
        assert store.estimate_message_count("C", 0, begin, end, tags="b") == (expected, True)
        assert store.estimate_message_count("C", 0, begin, end, sql="TAGS = 'b'") == (expected, True)
    store.reconfigure(count_scan_max=4)
    counted = store.estimate_message_count("C", 0, 0, high, tags="b")
    assert not counted.exact and counted.messages <= len(there)


def test_the_command(store, rmqstore):
    there, high = messages(store), store.max_offset("C", 0)
    store.offsets.commit("G", "C", 0, 0)
    store.close()
    row = json.loads(rmqstore("offsets", "lag", store.path, "-g", "G", "--json")[1])
    assert (row["behind"], row["lost"], row["min_offset"]) == (len(there), 0, there[0][0])
    small = [word for name, value in model.SMALL.items() for word in ("-o", f"{name}={value}")]
    for words, to in ((["--time", "0"], there[0][0]), (["-i", str(there[1][0])], there[1][0]), (["--end"], high),
                      (["--time", str(there[-1][1])], bounds(there, high, there[-1][1])[0])):
        code, out, err = rmqstore("offsets", "reset", store.path, "-g", "G", "-t", "C", *words, *small, "--json")
        assert code == 0 and json.loads(out)["offset"] == to, err


def test_a_broker(store):
    path, there, high = store.path, messages(store), store.max_offset("C", 0)
    store.close()
    with Broker.open(path, autoCreateSubscriptionGroup=True, **model.SMALL) as broker, Peer(broker.address) as peer:
        def ask(code, **more):
            return peer.ask(code, topic="C", queueId=0, **more)

        store = broker.store
        store.topic_table.set("C", readQueueNums=1, writeQueueNums=1)
        assert ask(30).ext["offset"] == str(high) and ask(31).ext["offset"] == str(there[0][0])
        assert ask(32).ext["timestamp"] == str(there[0][1])
        for when in (0, there[2][1], there[-1][1], there[-1][1] + 9):
            lower, upper = bounds(there, high, when)
            assert ask(29, timestamp=when).ext["offset"] == str(lower)
            assert ask(29, timestamp=when, boundaryType="upper").ext["offset"] == str(upper)
        peer.beat(consumers={"G": {"C": "*"}})
        at = there[1][0]
        store.offsets.commit("G", "C", 0, at)
        stats = ask(208, consumerGroup="G").body.decode()
        assert f'"brokerOffset":{high},"consumerOffset":{at}' in stats and '"lastTimestamp":0' not in stats
        assert f'"minOffset":{there[0][0]}' in ask(202).body.decode()
        for when, to in ((0, there[0][0]), (-1, high), (there[3][1], bounds(there, high, there[3][1])[0])):
            answer = ask(222, group="G", timestamp=when, isForce="true")
            assert answer.code == 0 and store.offsets.query("G", "C", 0) == to, answer
