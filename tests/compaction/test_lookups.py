"""What only compaction logs have is found: by key, by walks, by the commands; and what operators see of these logs."""
import asyncio
import json
import os
import shlex

import pytest

from rmq_store import AsyncMessageStore, MessageStore, errors
from tests.compaction import model
from tests.compaction.test_damage import clean, content_of, made, put, spoil, values

OPTIONS = [word for name in ("compaction_file_size_bytes", "compaction_cq_file_size_bytes")
           for word in ("-o", f"{name}={model.SMALL[name]}")]


@pytest.fixture
def json_lines(rmqstore):
    def run(*words):
        code, out, _ = rmqstore(*words, "--json")
        return code, [json.loads(line) for line in out.splitlines()]
    return run


@pytest.fixture
def store(tmp_path):
    """"alone" and "two words" are in the compaction log alone; k0 to k9 in both."""
    with made(tmp_path / "s", 0) as store:
        store.put("C", b"1", keys="alone", tags="a")
        store.put("C", b"2", keys="two words", properties={"UNIQ_KEY": "U2"})
        put(store, 2, 118)
        store.compact("C")
        assert clean(store) > 30
        yield store


# ---- by key

def test_by_key(store):
    for key, body in (("alone", b"1"), ("two", b"2"), ("words", b"2"), ("U2", b"2")):
        assert [bytes(m.body) for m in store.query_key("C", key)] == [body], key
    assert bytes(store.message_by_unique_key("C", "U2").body) == b"2"
    for none in ("two words", "dead", "alon", ""):
        assert not store.query_key("C", none).messages, none
    assert not store.query_key("D", "alone").messages


def test_by_key_from_both_without_doubles(store):
    """As many as a reader who begins at offset 0 meets, in the order of their offsets; the newest where there are more."""
    for key in ("k3", "alone"):
        met = [offset for offset, keys, _ in model.walked(store) if keys == key]
        found = [m.queue_offset for m in store.query_key("C", key, max_count=64)]
        assert found == met and len(met) == len(set(met)), key
    newest = [m.queue_offset for m in store.query_key("C", "k3", max_count=2)]
    assert newest == [offset for offset, keys, _ in model.walked(store) if keys == "k3"][-2:]
    assert store.query_key("C", "alone", max_count=0).messages == []


def test_by_key_and_time(store):
    (one,) = store.query_key("C", "alone")
    at = one.store_timestamp
    assert len(store.query_key("C", "alone", begin_time=at, end_time=at)) == 1
    assert not store.query_key("C", "alone", begin_time=at + 1).messages
    assert not store.query_key("C", "alone", end_time=at - 1).messages


def test_by_key_of_a_follower_and_after_a_change_of_the_policy(store):
    with MessageStore.open(store.path, readonly=True, follow=True, **model.SMALL) as follower:
        assert [bytes(m.body) for m in follower.query_key("C", "alone")] == [b"1"]
        store.topic_table.set_cleanup_policy("C", "DELETE")
        assert not store.query_key("C", "alone").messages


def test_views_of_a_search_outlive_compactions(store):
    held = store.query_key("C", "alone")[0]
    put(store, 120, 60)
    store.compact("C")
    assert bytes(held.body) == b"1" and held.keys == "alone"


def test_a_damaged_record_is_passed_over(tmp_path, store):
    log = store._compactions._log("C", 0, False)
    start = log.segments.pair(0)[0]
    spoil(os.path.join(log.places.log, f"{start:020d}"), 4, b"\xff")
    assert not store.query_key("C", "alone").messages and store.query_key("C", "two").messages


def test_an_id_of_a_message_that_left_the_log_finds_nothing(tmp_path):
    with made(tmp_path / "s", 0) as store:
        gone = store.put("C", b"1", keys="alone").msg_id
        put(store, 1, 60)
        clean(store)
        assert store.message_by_id(gone) is None and [bytes(m.body) for m in store.query_key("C", "alone")] == [b"1"]


# ---- walks

def test_scan_meets_what_get_meets(store):
    put(store, 0, 30, queue_id=3)
    expected = [(0, *found[:1]) for found in model.walked(store)] + [(3, i) for i in range(30)]
    assert [(m.queue_id, m.queue_offset) for m in store.scan("C")] == expected
    assert [m.queue_offset for m in store.scan("C", 0)] == [offset for _, offset in expected[:-30]]


@pytest.mark.parametrize("queue_id", [None, 0])
def test_scan_by_time_meets_what_only_the_compaction_log_has(store, queue_id):
    at = store.query_key("C", "alone")[0].store_timestamp
    everything = [(m.queue_offset, m.store_timestamp) for m in store.scan("C", queue_id)]
    assert [(m.queue_offset, m.store_timestamp) for m in store.scan("C", queue_id, begin_time=at)] == everything
    assert [m.queue_offset for m in store.scan("C", queue_id, end_time=at)] == [o for o, when in everything if when <= at]
    assert [m.queue_offset for m in store.scan("C", queue_id, begin_time=at + 1)] == [o for o, when in everything if when > at]


# ---- what operators see

def test_states(store):
    (state,) = store.compaction_states()
    high = store.max_offset("C", 0)
    assert (state.topic, state.queue_id, state.min_offset, state.max_offset, state.behind, state.damage) == (
        "C", 0, 0, high, 0, "")
    assert 0 < state.compacted_to <= high and 12 <= state.messages < high and 0 < state.size < state.file_size
    store.put("C", b"x", keys="a")
    store.flush()
    store.wait_dispatched(10)
    assert store.compaction_states("C")[0].behind == 1 and store.compaction_states("T") == []
    with model.open_store(store.path, readonly=True) as reader:
        assert reader.compaction_states()[0]._replace(behind=1) == store.compaction_states()[0]


def test_a_dry_run_says_what_a_compaction_does_and_changes_nothing(tmp_path, store):
    assert store.compact("C", dry_run=True) == []
    put(store, 120, 60)
    store._compactions.feed(store)
    def files():
        return {os.path.join(place, f): content_of(os.path.join(place, f))
                for place, _, names in os.walk(tmp_path / "s/compaction") for f in names}

    before = files()
    with model.open_store(store.path, readonly=True) as reader:
        dry = reader.compact("C", dry_run=True)
    assert dry == store.compact("C", dry_run=True)
    assert before == files()
    assert dry == store.compact("C") and dry[0].kept < dry[0].messages and dry[0].kept_size < dry[0].size
    with pytest.raises(errors.StoreStateError, match="its cleanup policy is not COMPACTION"):
        store.compact("T", dry_run=True)


def test_stat_shows_compaction_logs(store, rmqstore, json_lines):
    code, out, _ = rmqstore("stat", store.path)
    head = next(i for i, line in enumerate(out.splitlines()) if line.startswith("compaction log"))
    row = out.splitlines()[head + 1].split()
    assert code == 0 and row[:2] == ["C", "0"] and row[-1] == "0"
    (line,) = [line for line in json_lines("stat", store.path)[1] if line["kind"] == "compaction"]
    assert line["topic"] == "C" and line["messages"] == store.compaction_states()[0].messages
    assert "compaction log" not in rmqstore("stat", store.path, "-t", "T")[1]


def test_topics_compact_dry_run(store, rmqstore, json_lines):
    put(store, 120, 60)
    store._compactions.feed(store)
    code, out, err = rmqstore("topics", "compact", store.path, "-n", *OPTIONS)
    assert code == 0 and out.startswith("would compact  C/0  keeps "), err
    (line,) = json_lines("topics", "compact", store.path, "-n", *OPTIONS)[1]
    assert line["kind"] == "would_compact" and line["kept"] == store.compact("C")[0].kept


def test_table_command(store, rmqstore, json_lines):
    code, out, err = rmqstore("table", store.path, "C")
    assert (code, err) == (0, "") and [line.split("  ")[0] for line in out.splitlines()] == sorted(values(store))
    assert out.startswith("alone  C/0[0]  ") and out.splitlines()[0].endswith("  1")
    assert {line["key"]: line["body"] for line in json_lines("table", store.path, "C")[1]} == {
        key: body.decode() for key, body in values(store).items()}
    assert [line["key"] for line in json_lines("table", store.path, "C", "-k", "k3", "-k", "alone")[1]] == ["k3", "alone"]
    assert len(rmqstore("table", store.path, "C", "-c", "2", "--body", "hex")[1].splitlines()) == 2
    code, out, err = rmqstore("table", store.path, "C", "-k", "none")
    assert (code, "has the key none, or" in out) == (1, True)
    code, out, err = rmqstore("table", store.path, "CC")
    assert code == 1 and "topic 'CC'" in err and "C" in err
    code, _, err = rmqstore("table", store.path, "C", "--keys-max", "3")
    assert code == 3 and "more than 3, the limit is 3" in err


def test_get_and_query_commands_know_the_compaction_log(store, rmqstore):
    put(store, 0, 5, queue_id=1)
    out = rmqstore("get", store.path, "-t", "C", "-c", "1000")[1]
    assert [line.split("  ")[0] for line in out.splitlines()] == [
        f"C/{m.queue_id}[{m.queue_offset}]" for m in store.scan("C")]
    assert rmqstore("query", *shlex.split(f"{store.path} -t C -k alone"))[1].startswith("C/0[0]  ")


def test_async(tmp_path):
    made(tmp_path / "s", 100).close()

    async def look():
        async with await AsyncMessageStore.open(tmp_path / "s", _services=False, **model.SMALL) as store:
            dry = await store.compact("C", dry_run=True)
            assert dry == await store.compact("C")
            return await store.compaction_states()

    (state,) = asyncio.run(look())
    assert state.compacted_to > 0 and json.dumps(state._asdict())


def test_the_view_of_spark(store):
    """Without a JVM: the partitions, and the rows that a worker makes."""
    pyarrow = pytest.importorskip("pyarrow")
    from rmq_store.spark.options import ReadOptions
    from rmq_store.spark.schema import columns_of
    from rmq_store.spark.views import plan_view, read_view
    put(store, 0, 30, queue_id=3)
    store._compactions.feed(store)
    options = ReadOptions.parse({"path": store.path, "view": "compaction", "subscribe": "C"})
    parts = plan_view(options)
    assert len(parts) == 2
    rows = [row for part in parts
            for row in pyarrow.Table.from_batches(read_view(part, options, columns_of(options))).to_pylist()]
    expected = {(m.queue_id, m.queue_offset, m.keys, bytes(m.body)) for m in store.scan("C")}
    only_here = {row for row in expected if row[0] == 0 and row[1] < store._queues_of("C")[0][1]}
    found = {(row["queueId"], row["queueOffset"], row["keys"], row["body"]) for row in rows}
    assert only_here <= found <= expected and dict(rows[0]["properties"])["KEYS"] == "alone" and len(found) == len(rows)
