"""Accumulation by a filter: exact as far as the limits go, an estimate beyond them (RocketMQ: estimateMessageCount)."""
import asyncio
import json

import pytest

from rmq_store import AsyncMessageStore, MessageStore
from rmq_store.cli import main
from rmq_store.errors import ArgumentIllegal, FilterIllegal, StoreClosed

SQL = "price BETWEEN 3 AND 5"


def fill(store, count, topic="T", queue_id=0, begin=0):
    for i in range(begin, begin + count):
        store.put(topic, b"%d" % i, queue_id=queue_id, tags="odd" if i % 2 else "even", properties={"price": str(i % 10)})
    assert store.wait_dispatched(30)


@pytest.fixture(params=[{}, {"consumequeue_ext_enabled": True, "enable_calc_filter_bit_map": True},
                        {"write_path": "pool", "consumequeue_file_size_bytes": 400}])
def store(request, tmp_path):
    with MessageStore.open(tmp_path / "s", profile="test", **request.param) as opened:
        opened.consumer_filters.register("G", "T", SQL)
        fill(opened, 300)
        yield opened


def test_is_exact_where_all_is_looked_at(store):
    def count(begin, end, **how):
        return store.estimate_message_count("T", 0, begin, end, **how)

    for begin, end in ((0, 300), (7, 8), (3, 3), (5, 4), (-9, 40), (290, 900), (299, 300), (11, 271)):
        offsets = range(max(begin, 0), min(end, 300))
        assert count(begin, end) == (len(offsets), True)
        assert count(begin, end, tags="*") == (len(offsets), True)
        assert count(begin, end, sql=SQL) == (sum(3 <= i % 10 <= 5 for i in offsets), True)
        assert count(begin, end, tags="odd") == (sum(i % 2 for i in offsets), True)
        assert count(begin, end, tags="odd || even") == (len(offsets), True)
        assert count(begin, end, tags="none") == (0, True)
    assert store.estimate_message_count("none", 0, 0, 10, sql=SQL) == (0, True)
    assert store.estimate_message_count("T", 7, 0, 10) == (0, True)


def test_beyond_the_limits_it_is_an_estimate(store):
    store.reconfigure(count_scan_max=100)
    assert store.estimate_message_count("T", 0, 0, 100, sql=SQL) == (30, True)
    assert store.estimate_message_count("T", 0, 0, 101, sql=SQL) == (30 * 101 // 100, False)
    assert store.estimate_message_count("T", 0, 0, 300, sql=SQL) == (90, False)
    assert store.estimate_message_count("T", 0, 50, 300, tags="odd") == (125, False)
    store.reconfigure(count_scan_max=20_000, count_matches_max=20)
    # It stops at the 21st message that passes, the one at offset 65.
    assert store.estimate_message_count("T", 0, 0, 300, sql=SQL) == (21 * 300 // 66, False)
    assert store.estimate_message_count("T", 0, 0, 66, sql=SQL) == (21, True)
    assert store.estimate_message_count("T", 0, 0, 300) == (300, True)


def test_lag_by_a_filter(store):
    fill(store, 50, queue_id=1)
    store.offsets.commit("G", "T", 0, 250)
    lag = {row.queue_id: (row.behind, row.matching, row.exact) for row in store.lag("G", "T", sql=SQL)}
    assert lag == {0: (50, 15, True), 1: (50, 15, True)}
    assert [row.matching for row in store.lag("G")] == [None, None]
    assert [row.matching for row in store.lag("G", tags="odd")] == [25, 25]
    store.reconfigure(count_scan_max=10)
    assert [(row.matching, row.exact) for row in store.lag("G", sql="price < 5")] == [(25, False), (25, False)]


def test_wrong_arguments(store):
    with pytest.raises(FilterIllegal):
        store.estimate_message_count("T", 0, 0, 10, sql="a >")
    with pytest.raises(ArgumentIllegal, match="either tags or sql"):
        store.estimate_message_count("T", 0, 0, 10, sql=SQL, tags="a")
    for arguments in (("T", 0, "x", 10), ("T", 0, 0, None), ("T", -1, 0, 10), (5, 0, 0, 10)):
        with pytest.raises((ValueError, TypeError)):
            store.estimate_message_count(*arguments)
    with pytest.raises(ValueError, match="number of tags"):
        store.estimate_message_count("T", 0, 0, 10, tags="||".join(map(str, range(65))))
    store.close()
    with pytest.raises(StoreClosed):
        store.estimate_message_count("T", 0, 0, 10)


def test_spoilt_records_do_not_count(tmp_path):
    with MessageStore.open(tmp_path / "s", profile="test", flush_mode="sync") as store:
        fill(store, 20)
        with open(tmp_path / "s" / "commitlog" / ("0" * 20), "r+b") as log:
            log.seek(store.raw_entry("T", 0, 3)[0] + 4)
            log.write(b"spoilt")
        assert store.estimate_message_count("T", 0, 0, 20, sql=SQL) == (5, True)
        assert store.estimate_message_count("T", 0, 0, 20, tags="odd") == (10, True)       # the entry has the tag


def test_asyncio(store):
    async def run():
        wrapped = AsyncMessageStore(store)
        assert await wrapped.estimate_message_count("T", 0, 0, 300, sql=SQL) == (90, True)
        store.offsets.commit("G", "T", 0, 0)
        assert [row.matching for row in await wrapped.lag("G", sql=SQL)] == [90]

    asyncio.run(run())


def test_command(tmp_path, capsys):
    path = str(tmp_path / "s")
    with MessageStore.open(path, profile="test") as store:
        fill(store, 100)
        store.offsets.commit("G", "T", 0, 50)

    def run(*arguments):
        code = main.main(["offsets", *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    code, out, _ = run("lag", path, "--sql", SQL)
    assert code == 0
    assert out.splitlines()[1].split() == ["G", "T", "0", "50", "0", "100", "50", "0", "15"]
    assert out.splitlines()[2] == "50 messages to consume, 15 of them pass the filter"
    code, out, _ = run("lag", path, "--tags", "odd", "-o", "count_scan_max=10")
    assert out.splitlines()[1].split()[-1] == "~25"
    assert out.splitlines()[2].endswith("25 of them pass the filter (an estimate: see count_scan_max)")
    code, out, _ = run("lag", path, "--sql", SQL, "--json")
    line = json.loads(out)
    assert (line["behind"], line["matching"], line["exact"]) == (50, 15, True)
    assert "matching" not in run("lag", path)[1]
    assert run("show", path, "--sql", SQL)[0] == 64
    with pytest.raises(SystemExit, match="64"):
        run("lag", path, "--sql", "a >")
    assert run("lag", path, "--sql", SQL, "--tags", "a")[0] == 64
