"""One put, and one put_many, from one Python thread."""
from pytest_benchmark.fixture import BenchmarkFixture

from rmq_store import MessageStore

BODY = bytes(100)
ROUNDS, CALLS = 200, 1000


def test_put_100_bytes(benchmark: BenchmarkFixture, store: MessageStore) -> None:
    put = store.put
    benchmark.pedantic(lambda: put("BenchTopic0", BODY), rounds=ROUNDS, iterations=CALLS, warmup_rounds=2)


def test_put_100_bytes_tags_and_key(benchmark: BenchmarkFixture, store: MessageStore) -> None:
    put = store.put
    benchmark.pedantic(lambda: put("BenchTopic0", BODY, tags="TagA", keys="order-17"), rounds=ROUNDS, iterations=CALLS,
                       warmup_rounds=2)


def test_put_1_kib(benchmark: BenchmarkFixture, store: MessageStore) -> None:
    put, body = store.put, bytes(1024)
    benchmark.pedantic(lambda: put("BenchTopic0", body), rounds=ROUNDS, iterations=CALLS, warmup_rounds=2)


def test_put_many_128(benchmark: BenchmarkFixture, store: MessageStore) -> None:
    put_many, bodies = store.put_many, [BODY] * 128
    benchmark.pedantic(lambda: put_many("BenchTopic0", bodies), rounds=ROUNDS, iterations=20, warmup_rounds=2)


def test_put_async_and_wait(benchmark: BenchmarkFixture, store: MessageStore) -> None:
    put_async = store.put_async
    benchmark.pedantic(lambda: put_async("BenchTopic0", BODY, wait=True).result(10), rounds=50, iterations=200, warmup_rounds=1)
