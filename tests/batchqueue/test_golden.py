"""Batch queues that the real RocketMQ 5.3.3 wrote (tests/golden/README.md): read, rebuilt byte by byte, and continued."""
import gzip
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from rmq_store import MessageStore, verify
from tests.golden_store import GOLDEN

SIZES = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 6000, "index_slots": 100, "index_entries_max": 1000}


@pytest.fixture
def golden(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    with tarfile.open(GOLDEN / "v5-batchqueue" / "store.tar.gz") as archive:
        archive.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    with gzip.open(GOLDEN / "v5-batchqueue" / "batches.json.gz", "rt") as file:
        return tmp_path / "store", json.load(file)


def messages(store: MessageStore, queue_id: int) -> list[str]:
    found, at = [], 0
    while result := store.get("B", queue_id, at, 32):
        found += [f"{m.queue_offset} {bytes(m.body).decode()} {m.flag} {m.properties['n']}" for m in result]
        at = result.next_offset
    return found


def unit_files(store: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in sorted((store / "batchconsumequeue").glob("*/*/*"))}


def test_messages_and_gets_are_those_of_rocketmq(golden: tuple[Path, dict[str, Any]]) -> None:
    path, expected = golden
    before = unit_files(path)
    assert not [f for f in verify(path) if f.severity == "corrupt"]
    with MessageStore.open(path, readonly=True, **SIZES) as store:
        for queue_id in (0, 1):
            assert messages(store, queue_id) == expected["messages"][str(queue_id)]
            bounds, *gets = expected["gets"][str(queue_id)]
            assert bounds == f"{store.min_offset('B', queue_id)} {store.max_offset('B', queue_id)}"
            for (at, most), answer in zip(expected["asked"], gets, strict=True):
                got = store.get("B", queue_id, at, most, _whole=True)
                count = sum(int(m.properties["INNER_NUM"]) for m in got)
                assert f"{got.status.name} {got.next_offset} {len(got)} {count}" == answer, (queue_id, at, most)
    assert unit_files(path) == before


def test_units_are_rebuilt_as_rocketmq_wrote_them(golden: tuple[Path, dict[str, Any]]) -> None:
    path, _ = golden
    before = unit_files(path)
    assert len(before) == 8 and all(len(data) == 46 * 20 for data in before.values())
    for file in before:
        file.unlink()
    (path / "checkpoint").unlink()
    (path / "abort").touch()
    MessageStore.open(path, batch_consumequeue_file_size_bytes=46 * 20, **SIZES).close()
    assert unit_files(path) == before


def test_the_queues_continue(golden: tuple[Path, dict[str, Any]]) -> None:
    path, expected = golden
    with MessageStore.open(path, **SIZES) as store:
        assert store.options.batch_consumequeue_file_size_bytes == 46 * 20
        end = store.max_offset("B", 1)
        assert store.put_inner_batch("B", [b"one", b"two"], queue_id=1).queue_offsets == [end, end + 1]
        store.wait_dispatched()
        assert [bytes(m.body) for m in store.get("B", 1, end)] == [b"one", b"two"]
        assert messages(store, 0) == expected["messages"]["0"]
