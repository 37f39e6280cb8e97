"""One pull, one query, one scan, on 20,000 messages in the page cache."""
from pytest_benchmark.fixture import BenchmarkFixture

from rmq_store import MessageStore
from rmq_store.bench import messages


def test_get_32_views(benchmark: BenchmarkFixture, filled: MessageStore) -> None:
    def pull() -> int:
        return sum(len(m.body) for m in filled.get(messages.TOPIC, 0, 100, 32))
    assert benchmark(pull) == 32 * 1024


def test_get_32_all_fields(benchmark: BenchmarkFixture, filled: MessageStore) -> None:
    def pull() -> list[tuple[object, ...]]:
        return [(bytes(m.body), m.tags, m.keys, m.properties, m.store_timestamp, m.msg_id)
                for m in filled.get(messages.TOPIC, 0, 100, 32)]
    assert len(benchmark(pull)) == 32


def test_get_1(benchmark: BenchmarkFixture, filled: MessageStore) -> None:
    assert len(list(benchmark(filled.get, messages.TOPIC, 1, 50, 1))) == 1


def test_get_32_by_tag(benchmark: BenchmarkFixture, filled: MessageStore) -> None:
    def pull() -> int:
        return sum(1 for _ in filled.get(messages.TOPIC, 0, 0, 32, tags="Tag4"))
    assert benchmark(pull) > 0


def test_query_key(benchmark: BenchmarkFixture, filled: MessageStore) -> None:
    assert len(list(benchmark(filled.query_key, messages.TOPIC, "order-100500"))) == 1


def test_query_missing_key(benchmark: BenchmarkFixture, filled: MessageStore) -> None:
    assert list(benchmark(filled.query_key, messages.TOPIC, "no such key")) == []


def test_message_by_id(benchmark: BenchmarkFixture, filled: MessageStore) -> None:
    (first,) = filled.get(messages.TOPIC, 2, 7, 1)
    assert benchmark(filled.message_by_id, first.msg_id).offset == first.offset


def test_offset_by_time(benchmark: BenchmarkFixture, filled: MessageStore) -> None:
    (some,) = filled.get(messages.TOPIC, 0, 1000, 1)
    assert benchmark(filled.offset_by_time, messages.TOPIC, 0, some.store_timestamp) <= 1000


def test_scan_a_queue(benchmark: BenchmarkFixture, filled: MessageStore) -> None:
    assert benchmark(lambda: sum(1 for _ in filled.scan(messages.TOPIC, 0))) == filled.max_offset(messages.TOPIC, 0)
