"""Stores for the micro benchmarks, and the machine's description in pytest-benchmark's JSON.

Every benchmark runs on a store with its commit, flush and dispatch threads at work. Rounds are bounded, so that the log of a
run stays below a gibibyte.
"""
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from rmq_store import MessageStore
from rmq_store.bench import machine, messages

FILE_SIZE = 64 << 20
READ_MESSAGES = 20_000


def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, object]) -> None:
    machine_info["rmq_store"] = machine.describe(Path.cwd())


def _yardstick() -> float:
    """Seconds of work of the interpreter and of memory that no change of ours can touch."""
    body, lowest = bytes(1024), float("inf")
    for _ in range(50):
        begin = time.perf_counter()
        seen: dict[int, int] = {}
        for i in range(256):
            seen[i] = zlib.crc32(body, i)
        lowest = min(lowest, time.perf_counter() - begin)
    return lowest


@pytest.fixture(autouse=True)
def yardstick(benchmark: BenchmarkFixture) -> Iterator[None]:
    """What the gate (gate.py) measures a benchmark by, from right before and right after it: a machine that others share
    changes its speed within seconds."""
    before = _yardstick()
    yield
    benchmark.extra_info["yardstick_s"] = max(before, _yardstick())


@pytest.fixture(params=["mmap", "pool"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MessageStore]:
    """An empty store, asynchronous flush."""
    with MessageStore.open(tmp_path / "store", write_path=request.param, segment_size_bytes=FILE_SIZE) as opened:
        yield opened


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageStore]:
    """A store with READ_MESSAGES messages of 1 KiB with all a client sends, dispatched."""
    with MessageStore.open(tmp_path_factory.mktemp("filled") / "store", segment_size_bytes=FILE_SIZE) as opened:
        messages.write(opened, "full", 1024, READ_MESSAGES)
        messages.drain(opened)
        yield opened
