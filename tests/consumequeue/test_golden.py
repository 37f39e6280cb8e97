"""Queues against the real RocketMQ's: built from its log they equal its files byte for byte; its files, crashed or not, load
and recover to what it returned; its answers by time are ours.
"""
import pytest

from rmq_store.queues.consumequeue._owner import QueueTableOwner
from rmq_store.queues.consumequeue._time import offset_by_time
from rmq_store.queues.consumequeue.loader import load_queues
from tests.consumequeue.queue_logs import (
    CRASHED,
    LOADABLE,
    config,
    dispatch,
    entries,
    expected,
    files,
    records,
    store_of,
)

CLEAN = [c for c in LOADABLE if c not in CRASHED]


def open_table(store, options, **more):
    ext = options["mappedFileSizeConsumeQueueExt"] if options.get("enableConsumeQueueExt") == "true" else 0
    (store / ".alloc").mkdir(exist_ok=True)
    table = QueueTableOwner(str(store / "consumequeue"), ext_dir=str(store / "consumequeue_ext"), tmp_dir=str(store / ".alloc"),
                            file_size=options["mappedFileSizeConsumeQueue"], ext_file_size=ext, **more)
    load_queues(table)
    return table


def expected_entries(case):
    out = {}
    for m in expected(case, "msg"):
        out.setdefault((m["topic"].encode(), m["queueId"]), []).append((m["cqPhyOffset"], m["cqSize"], m["tagsCode"]))
    return out


def found_entries(table):
    out = {queue: entries(table, *queue) for queue in table.queues()}
    return {queue: units for queue, units in out.items() if units}


def expected_offsets(case):
    return {(q["topic"].encode(), q["queueId"]): (q["min"], q["max"]) for q in expected(case, "queue")}


def found_offsets(table):
    return {queue: table.offsets(*queue)[:2] for queue in table.queues() if table.offsets(*queue)[1] > 0}


@pytest.mark.parametrize("case", [c for c in CLEAN if c != "v4-cqext"])
def test_built_from_the_log_they_equal_javas_files(case, tmp_path):
    store = store_of(case, tmp_path)
    options = config(case)
    built = tmp_path / "built"
    built.mkdir()
    table = open_table(built, options)
    found, _ = records(store, options["mappedFileSizeCommitLog"])
    dispatch(table, found)
    table.sync()
    assert files(built / "consumequeue") == files(store / "consumequeue")
    assert table.gaps == 0
    dispatch(table, found)      # once more: repeated entries change nothing
    assert files(built / "consumequeue") == files(store / "consumequeue")
    assert not list((built / ".alloc").iterdir())


@pytest.mark.parametrize("thorough", [False, True])
@pytest.mark.parametrize("case", CLEAN)
def test_a_clean_store_loads(case, thorough, tmp_path):
    store = store_of(case, tmp_path)
    options = config(case)
    before = files(store / "consumequeue")
    table = open_table(store, options)
    end = table.recover(thorough)
    assert end == max(p + s for units in expected_entries(case).values() for p, s, _ in units)
    assert found_offsets(table) == expected_offsets(case)
    assert found_entries(table) == expected_entries(case)
    table.truncate(end)
    table.correct_min(0)
    assert found_offsets(table) == expected_offsets(case)
    assert files(store / "consumequeue") == before


@pytest.mark.parametrize("case", CRASHED)
def test_a_crashed_store_recovers(case, tmp_path):
    store = store_of(case, tmp_path)
    options = config(case)
    found, end = records(store, options["mappedFileSizeCommitLog"])
    assert end == expected(case, "store")[0]["maxPhyOffset"]
    results = []
    for _ in range(2):          # the second time there is nothing left to do
        table = open_table(store, options)
        table.recover(True)
        table.truncate(end)
        dispatch(table, found)
        table.sync()
        assert found_offsets(table) == expected_offsets(case)
        assert found_entries(table) == expected_entries(case)
        results.append(files(store / "consumequeue"))
    assert results[0] == results[1]


@pytest.mark.parametrize("case", [c for c in CRASHED if c.endswith(("tornzero", "torncrc"))])
def test_readonly_only_moves_positions(case, tmp_path):
    store = store_of(case, tmp_path)
    options = config(case)
    _, end = records(store, options["mappedFileSizeCommitLog"])
    table = open_table(store, options, readonly=True)
    before = files(store)
    assert table.recover(True) > end
    table.truncate(end)
    assert found_entries(table) == expected_entries(case)
    assert files(store) == before
    with pytest.raises(OSError, match="Read-only"):
        table.put(b"T", 0, end, 100, 0, 0, 0)


def test_ext_units_are_javas(tmp_path):
    case = "v4-cqext"
    table = open_table(store_of(case, tmp_path), config(case))
    table.recover(False)
    messages = expected(case, "msg")
    assert any(m["ext"]["bitMap"] for m in messages) and not all(m["ext"]["bitMap"] for m in messages)
    for m in messages:
        assert table.is_ext_address(m["tagsCode"])
        assert table.read_ext(m["topic"].encode(), m["queueId"], m["tagsCode"]) == (
            m["ext"]["tagsCode"], m["ext"]["storeTs"], bytes.fromhex(m["ext"]["bitMap"] or ""))


def test_ext_goes_on_where_java_stopped(tmp_path):
    case = "v4-cqext"
    store = store_of(case, tmp_path)
    before = files(store / "consumequeue_ext")
    table = open_table(store, config(case))
    end = table.recover(True)
    assert files(store / "consumequeue_ext") == before
    topic, queue_id = table.queues()[0]
    at = table.offsets(topic, queue_id)[1]
    for i in range(700):        # several ext files of 4 KiB
        table.put(topic, queue_id, end + 100 * i, 100, i, 5000 + i, at + i)
    table.publish()
    units = entries(table, topic, queue_id)[-700:]
    assert [table.read_ext(topic, queue_id, tags)[:2] for _, _, tags in units] == [(i, 5000 + i) for i in range(700)]
    for m in expected(case, "msg"):     # every address of Java's still leads where it did
        assert table.read_ext(m["topic"].encode(), m["queueId"], m["tagsCode"])[0] == m["ext"]["tagsCode"]


@pytest.mark.parametrize("case", LOADABLE)
def test_answers_by_time(case, tmp_path):
    store = store_of(case, tmp_path)
    options = config(case)
    found, end = records(store, options["mappedFileSizeCommitLog"])
    times = {r.offset: r.store_timestamp for r in found}
    table = open_table(store, options)
    table.recover(case in CRASHED)
    table.truncate(end)
    dispatch(table, found)
    rule = "nearest" if case.startswith("v4") else "lower"
    lines = [t for t in expected(case, "time") if (t["topic"].encode(), t["queueId"]) in set(table.queues())]
    assert lines
    for t in lines:
        answer = offset_by_time(table, t["topic"].encode(), t["queueId"], t["ts"], lambda at, _: times.get(at, -1), rule=rule)
        assert answer == t["offset"], t
