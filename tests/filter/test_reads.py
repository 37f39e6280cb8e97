"""A filter on each way to read: get, waiting, consumers, asyncio, another process, the command line; and what it moves past."""
import asyncio
import json
import os
import subprocess
import sys
import threading

import pytest

from rmq_store import AsyncMessageStore, MessageStore, SqlFilter
from rmq_store.errors import ArgumentIllegal, FilterIllegal, ForkedProcess, StoreClosed
from rmq_store.spark.arrow import open_piece
from rmq_store.spark.options import ReadOptions
from rmq_store.spark.splits import plan
from rmq_store.status import GetStatus
from tests.forks import fork

SQL = "price BETWEEN 3 AND 5"


def fill(store, count=100, topic="T"):
    for i in range(count):
        store.put(topic, b"%d" % i, tags="odd" if i % 2 else "even", properties={"price": str(i % 10), "at": f"r{i}"})
    assert store.wait_dispatched()


@pytest.fixture
def store(tmp_path):
    with MessageStore.open(tmp_path / "store", profile="test") as opened:
        fill(opened)
        yield opened


def offsets(result):
    return [message.queue_offset for message in result]


def test_get_returns_what_fulfils_it(store):
    result = store.get("T", 0, 0, sql=SQL, max_count=100)
    assert offsets(result) == [i for i in range(100) if 3 <= i % 10 <= 5]
    assert result.status is GetStatus.FOUND
    assert result.next_offset == 100
    assert offsets(store.get("T", 0, 50, sql=SqlFilter(SQL), max_count=2)) == [53, 54]
    assert store.get("T", 0, 50, sql=SQL, max_count=2).next_offset == 55
    assert offsets(store.get("T", 0, 0, tags="*", sql="TAGS = 'odd' AND price = 3", max_count=100)) == list(range(3, 100, 10))


def test_next_offset_moves_past_what_does_not_match(store):
    result = store.get("T", 0, 7, sql="price > 100")
    assert (result.status, result.next_offset, list(result)) == (GetStatus.NO_MATCHED_MESSAGE, 100, [])
    assert store.get("T", 0, 100, sql=SQL).status is GetStatus.OFFSET_OVERFLOW_ONE
    assert store.get("T", 0, 101, sql=SQL).status is GetStatus.OFFSET_OVERFLOW_BADLY
    assert store.get("T", 0, -1, sql=SQL).status is GetStatus.OFFSET_TOO_SMALL
    assert store.get("none", 0, 0, sql=SQL).status is GetStatus.NO_MESSAGE_IN_QUEUE


@pytest.mark.parametrize("ext", [False, True])
def test_as_many_as_the_expression_or_the_tag_says(tmp_path, ext):
    """FLT-16 and FLT-19 without bit maps: tags by code, expressions, and an expression that changes between two reads."""
    with MessageStore.open(tmp_path / "s", profile="test", consumequeue_ext_enabled=ext) as store:
        for i in range(30):
            store.put("T", b"", tags=f"TAG{i % 3}", properties={"a": str(i % 5)})
        assert store.wait_dispatched()
        for tags in ("TAG1", " TAG1 || TAG1||none", "TAG1||"):
            assert offsets(store.get("T", 0, 0, tags=tags)) == list(range(1, 30, 3))
        assert len(store.get("T", 0, 0, tags="TAG0 || TAG2")) == 20
        assert len(store.get("T", 0, 0, tags="*")) == len(store.get("T", 0, 0, tags="")) == 30
        assert offsets(store.get("T", 0, 0, sql="a = 1")) == list(range(1, 30, 5))
        assert offsets(store.get("T", 0, 0, sql="a = 2")) == list(range(2, 30, 5))
        assert len(store.get("T", 0, 0, sql="TAGS IN ('TAG0', 'TAG2') AND a BETWEEN 0 AND 4")) == 20


def test_what_cannot_be_compared_does_not_match(store):
    for sql in ("at > 3", "NOT (at > 3)", "at = 3", "missing > 3", "NOT (missing > 3)", "at", "NULL"):
        assert store.get("T", 0, 0, sql=sql).status is GetStatus.NO_MATCHED_MESSAGE
    assert len(store.get("T", 0, 0, sql="at > 3 OR TRUE")) == 0
    assert len(store.get("T", 0, 0, sql="TRUE OR at > 3")) == 32


def test_a_look_that_is_bounded_ends_where_it_is(tmp_path):
    with MessageStore.open(tmp_path / "s", profile="test", filter_bytes_max=20 * 40) as store:
        fill(store)
        seen, at = [], 0
        for _ in range(10):
            result = store.get("T", 0, at, sql="at = 'r70' OR at = 'r95'")
            seen.append((result.status.name, result.next_offset, offsets(result)))
            at = result.next_offset
            if at == 100:
                break
    assert seen == [("NO_MATCHED_MESSAGE", 40, []), ("FOUND", 80, [70]), ("FOUND", 100, [95])]


@pytest.mark.parametrize("how", [{"write_path": "pool"}, {"consumequeue_ext_enabled": True},
                                 {"segment_size_bytes": 65536}, {"compat": "4.9"}])
def test_filters_over_files_and_the_pool(tmp_path, how):
    with MessageStore.open(tmp_path / "s", profile="test", **how) as store:
        for i in range(1500):
            store.put("T", b"x" * 200, queue_id=i % 2, properties={"n": str(i)})
        assert store.wait_dispatched()
        got, at = [], 0
        while at < store.max_offset("T", 1):
            result = store.get("T", 1, at, sql="n >= 100 AND n < 1400")
            got += [int(message.properties["n"]) for message in result]
            at = result.next_offset
    assert got == list(range(101, 1400, 2))


@pytest.mark.parametrize("read", [
    lambda s, **how: s.get("T", 0, 0, **how), lambda s, **how: s.get("T", 0, 0, wait=0.01, **how),
    lambda s, **how: s.consumer("G", "T", **how)])
def test_wrong_use_is_typed(store, read):
    with pytest.raises(ArgumentIllegal, match="takes either tags or sql"):
        read(store, tags="a", sql=SQL)
    with pytest.raises(FilterIllegal, match="no quote ends it"):
        read(store, sql="a = 'x")
    with pytest.raises(FilterIllegal, match="empty"):
        read(store, sql="")
    with pytest.raises(ArgumentIllegal, match="sql is 5"):
        read(store, sql=5)
    with pytest.raises(ArgumentIllegal, match="tags is 5"):
        read(store, tags=5, sql=SQL)


def test_waits_for_a_message_that_fulfils_it(store):
    def put():
        fill(store, 2)
        store.put("T", b"it", properties={"price": "77"})

    thread = threading.Thread(target=put)
    thread.start()
    result = store.get("T", 0, 0, sql="price = 77", wait=60)
    thread.join()
    assert [bytes(message.body) for message in result] == [b"it"]
    assert store.get("T", 0, 0, sql="price = 78", wait=0.01).status in (GetStatus.NO_MATCHED_MESSAGE,
                                                                       GetStatus.OFFSET_OVERFLOW_ONE)


def test_a_consumer_passes_over_the_others(store):
    with store.consumer("G", "T", sql=SQL) as consumer:
        got = []
        while (batch := consumer.poll(8)) is not None:
            got += offsets(batch)
            batch.ack()
        assert got == [i for i in range(100) if 3 <= i % 10 <= 5]
        assert repr(consumer).endswith(f"sql={SQL!r})")
    assert store.offsets.query("G", "T", 0) == 100


def test_what_failed_comes_back_whatever_the_filter_says(store):
    with store.consumer("G", "T", sql="price = 3 AND RETRY_TOPIC IS NULL") as consumer:
        first = consumer.poll(1, timeout=60)
        first.retry(first[0], delay_level=0)
        first.ack()
        seen = []
        while (batch := consumer.poll(32, timeout=0 if len(seen) >= 10 else 60)) is not None:
            seen += [(message.topic, bytes(message.body)) for message in batch]
            batch.ack()
    assert ("%RETRY%G", b"3") in seen
    assert len(seen) == 10


def test_asyncio(store):
    async def main():
        wrapped = AsyncMessageStore(store)
        result = await wrapped.get("T", 0, 0, sql=SQL, max_count=100)
        assert len(result) == 30
        assert (await wrapped.get("T", 0, 0, sql="price = 99", wait=0.01)).messages == []
        with pytest.raises(FilterIllegal):
            await wrapped.get("T", 0, 0, sql="a >")
        with pytest.raises(ArgumentIllegal):
            wrapped.subscribe("T", 0, sql=SQL, tags="a")
        got = []
        async with asyncio.timeout(60):
            with wrapped.subscribe("T", 0, sql=SQL) as messages:
                async for message in messages:
                    got.append(message.queue_offset)
                    if len(got) == 30:
                        fill(store, 5)
                    if len(got) == 32:
                        break
        assert got == [*(i for i in range(100) if 3 <= i % 10 <= 5), 103, 104]
        async with await wrapped.consumer("G", "T", sql="price = 9") as consumer:
            batch = await consumer.poll(timeout=60)
            assert offsets(batch) == list(range(9, 100, 10))
            batch.ack()

    asyncio.run(main())


def test_a_reader_in_another_process(store):
    program = ("import sys; from rmq_store import MessageStore\n"
               "with MessageStore.open(sys.argv[1], readonly=True, follow=True) as s:\n"
               "    print(len(s.get('T', 0, 0, sql=sys.argv[2], max_count=100)), flush=True)\n"
               "    print(bytes(s.get('T', 0, 100, sql='price = 500', wait=60)[0].body).decode())\n")
    child = subprocess.Popen([sys.executable, "-c", program, store.path, SQL], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "30\n"
    store.put("T", b"other", properties={"price": "1"})
    store.put("T", b"wanted", properties={"price": "500"})
    assert child.communicate(timeout=60)[0] == "wanted\n"
    assert child.returncode == 0


def test_spark_reads_by_the_option_sql(store):
    """As its workers do, without a session: the option goes to them as text, and the kernel's split chooses rows."""
    options = ReadOptions.parse({"path": store.path, "sql": "price = 3 OR at = 'r50'", "subscribe": "T"})
    store.flush()
    rows = []
    for pieces in plan(options):
        for piece in pieces:
            with open_piece(piece, options) as split:
                while (found := split.batch(("queueOffset",))) is not None:
                    rows += memoryview(found[1]["queueOffset"]).cast("q")
    assert rows == sorted([*range(3, 100, 10), 50])


def command(*arguments):
    return subprocess.run([sys.executable, "-m", "rmq_store", *arguments], capture_output=True, text=True, timeout=120)


def test_commands(store):
    done = command("get", store.path, "-t", "T", "--sql", "price = 3 AND at <> 'r3'", "--json", "-c", "3")
    assert [json.loads(line)["queue_offset"] for line in done.stdout.splitlines()] == [13, 23, 33]
    done = command("get", store.path, "-t", "T", "--sql", "price = 11")
    assert done.returncode == 1
    assert "no message of T/0 that fulfils price = 11 from offset 0 to 100" in done.stdout
    done = command("tail", store.path, "-t", "T", "-i", "0", "--sql", "price = 4", "-c", "2", "--json")
    assert [json.loads(line)["queue_offset"] for line in done.stdout.splitlines()] == [4, 14]
    done = command("get", store.path, "-t", "T", "--sql", "price == 4")
    assert done.returncode == 64
    assert "write = for equal" in done.stderr
    done = command("get", store.path, "-t", "T", "--sql", "price = 4", "--tags", "a")
    assert done.returncode == 64
    assert "takes either tags or sql" in done.stderr


def test_closing_and_fork_are_told_before_the_read(store):
    """Before the parser is imported, too: a child of fork may wait for the import lock for ever."""
    child = fork()
    if child == 0:
        found = 1
        try:
            sys.modules["rmq_store.filter.compiler"] = None
            store.get("T", 0, 0, sql="price = 123456")
        except ForkedProcess:
            found = 0
        finally:
            os._exit(found)
    assert os.waitpid(child, 0)[1] == 0
    store.close()
    with pytest.raises(StoreClosed):
        store.get("T", 0, 0, sql=SQL)
