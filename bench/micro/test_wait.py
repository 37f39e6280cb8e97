"""From a put to a reader that waits in another thread, and back: a hand-over each way."""
import threading

from pytest_benchmark.fixture import BenchmarkFixture

from rmq_store import MessageStore
from rmq_store.bench import messages

PROMPT = {"commit_interval_max_ms": 0}      # on the pool a put of 100 bytes else waits 200 ms for its commit


def test_put_to_waiting_get(benchmark: BenchmarkFixture, store: MessageStore) -> None:
    if store.options.write_path == "pool":
        store.reconfigure(**PROMPT)
    body = b"x" * 100
    took = threading.Semaphore(0)

    def consume() -> None:
        at = 0
        while True:
            result = store.get(messages.TOPIC, 0, at, 32, wait=60)
            at = result.next_offset
            for m in result:
                if not len(m.body):
                    return
                took.release()

    def hand_over() -> None:
        store.put(messages.TOPIC, body)
        took.acquire()

    consumer = threading.Thread(target=consume)
    consumer.start()
    try:
        benchmark.pedantic(hand_over, rounds=3000, warmup_rounds=100)
    finally:
        store.put(messages.TOPIC, b"")
        consumer.join()
