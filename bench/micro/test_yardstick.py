"""What the gate (gate.py) measures the others by: work of the interpreter and of memory that no change of ours can touch."""
import zlib

from pytest_benchmark.fixture import BenchmarkFixture

BODY = bytes(1024)


def test_yardstick(benchmark: BenchmarkFixture) -> None:
    def work() -> int:
        seen: dict[int, int] = {}
        for i in range(256):
            seen[i] = zlib.crc32(BODY, i)
        return len(seen)
    assert benchmark(work) == 256
