"""The pure functions of the codec, on the record that most benchmarks use: 1 KiB of body, KEYS, UNIQ_KEY, WAIT and TAGS."""
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from rmq_store.bench import messages
from rmq_store.codec import _codec, batch, message_id, properties

BODY, _, PROPERTIES = messages.messages("full", 1024, 1)[0]
FIELDS = {"queue_id": 1, "born_timestamp": 1_700_000_000_000, "born_host": "192.0.2.20:45678",
          "store_timestamp": 1_700_000_000_001, "store_host": "192.0.2.10:10911", "properties": PROPERTIES}
RECORD = _codec.encode_record(messages.TOPIC, BODY, **FIELDS)
BATCH = batch.encode_batch([{"body": BODY[:100], "properties": PROPERTIES}] * 32)


def test_encode_into(benchmark: BenchmarkFixture) -> None:
    place = bytearray(len(RECORD))
    assert benchmark(_codec.encode_into, place, 0, messages.TOPIC, BODY, **FIELDS) == len(RECORD)
    assert place == RECORD


def test_decode_record(benchmark: BenchmarkFixture) -> None:
    assert benchmark(_codec.decode_record, RECORD).body == BODY


def test_encode_properties(benchmark: BenchmarkFixture) -> None:
    several = properties.decode_properties(PROPERTIES)
    assert properties.decode_properties(benchmark(properties.encode_properties, several)) == several


def test_decode_properties(benchmark: BenchmarkFixture) -> None:
    assert len(benchmark(properties.decode_properties, PROPERTIES)) == 4


def test_decode_batch_32(benchmark: BenchmarkFixture) -> None:
    assert len(benchmark(batch.decode_batch, BATCH)) == 32


@pytest.mark.parametrize("size", [100, 1024, 65536])
def test_body_crc32(benchmark: BenchmarkFixture, size: int) -> None:
    benchmark(_codec.body_crc32, bytes(size))


def test_java_hash(benchmark: BenchmarkFixture) -> None:
    benchmark(_codec.java_hash, f"{messages.TOPIC}#{messages.unique_id(7)}")


def test_create_message_id(benchmark: BenchmarkFixture) -> None:
    assert len(benchmark(message_id.create_message_id, "192.0.2.10:10911", 1 << 40)) == 32
