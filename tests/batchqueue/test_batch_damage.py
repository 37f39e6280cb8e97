"""Units of a batch queue that are damaged while the store is closed: made again, or passed over and counted, never silent."""
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmq_store import MessageStore, verify

UNIT, UNITS, BATCHES, EACH = 46, 8, 50, 4           # bytes; units of a file; batches, and messages of each
SIZES: dict[str, Any] = {"segment_size_bytes": 1 << 17, "index_slots": 100, "index_entries_max": 1000,
                         "batch_consumequeue_file_size_bytes": UNIT * UNITS, "consumequeue_file_size_bytes": 400}
COUNT, BASE, SIZE = 36, 28, 8                       # where fields of a unit are


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path / "s", **SIZES) as store:
        store.topic_table.set_queue_type("B", "BatchCQ")
        for i in range(BATCHES):
            store.put_inner_batch("B", [b"%d" % (i * EACH + k) for k in range(EACH)])
    return tmp_path / "s"


def change(path: Path, unit: int, field: int, data: bytes) -> None:
    name = path / "batchconsumequeue" / "B" / "0" / f"{unit // UNITS * UNITS * UNIT:020d}"
    with name.open("r+b") as file:
        file.seek(unit % UNITS * UNIT + field)
        file.write(data)


def read(store: MessageStore, at: int = 0, count: int = 32, **more: Any) -> tuple[list[int], int]:
    """(the numbers of the messages, how many were unreadable). No call leads back, or out of the queue."""
    found: list[int] = []
    unreadable = 0
    while True:
        got = store.get("B", 0, at, count, **more)
        assert at <= got.next_offset <= got.max_offset == BATCHES * EACH
        assert [int(bytes(m.body)) for m in got] == [m.queue_offset for m in got]
        found += [m.queue_offset for m in got]
        unreadable += got.unreadable
        if got.next_offset == at:
            assert at == got.max_offset
            return found, unreadable
        at = got.next_offset


ALL = list(range(BATCHES * EACH))


@pytest.mark.parametrize("first", [4 * UNITS, 5 * UNITS, 6 * UNITS])
def test_a_file_of_zeros_among_the_last_ones_is_made_again(first: int, path: Path) -> None:
    change(path, first, 0, bytes(UNIT * UNITS))
    with MessageStore.open(path, **SIZES) as store:
        assert read(store) == (ALL, 0)


@pytest.mark.parametrize("count", [1, 5, 32])
def test_what_is_damaged_further_back_is_passed_over_and_counted(count: int, path: Path) -> None:
    for file in (1, 2):
        change(path, file * UNITS, 0, bytes(UNIT * UNITS))
    with MessageStore.open(path, **SIZES) as store:
        lost = set(range(UNITS * EACH, 3 * UNITS * EACH))
        found, unreadable = read(store, count=count)
        assert found == [at for at in ALL if at not in lost] and unreadable > 0
        for at in range(0, BATCHES * EACH, 3):      # whatever the search meets
            got = store.get("B", 0, at)
            assert got[0].queue_offset == (at if at not in lost else 3 * UNITS * EACH)
            assert (got.unreadable > 0) == (at in lost) or at < UNITS * EACH
        assert store.estimate_message_count("B", 0, 0, BATCHES * EACH, tags="none").messages == 0


@pytest.mark.parametrize("field,data,lost", [
    (COUNT, b"\x7f\xff", 0), (COUNT, b"\xff\xff", 0), (COUNT, b"\0\x07", 0), (COUNT, b"\0\x02", 0), (COUNT, b"\0\0", 0),
    (BASE, b"\x7f" + b"\xff" * 7, 4), (BASE, b"\0" * 7 + b"\1", 4), (SIZE, b"\0\0\0\x01", 4), (SIZE, b"\xff" * 4, 4)])
@pytest.mark.parametrize("unit", [0, 5, 7, 12, 20])
@pytest.mark.parametrize("count", [1, 32])
def test_one_damaged_unit(count: int, unit: int, field: int, data: bytes, lost: int, path: Path) -> None:
    change(path, unit, field, data)
    assert any(f.kind in ("queue_other", "queue_wrong") for f in verify(path))
    with MessageStore.open(path, **SIZES) as store:
        for at in (0, unit * EACH, unit * EACH + 3):
            found, unreadable = read(store, at, count)
            missing = set(ALL[at:]) - set(found)
            if at == 0 and count > EACH and unit != 7:          # a read that has the whole batch, and the next unit beside it
                assert len(missing) <= lost
            assert found == sorted(set(found)) and missing <= set(range(unit * EACH, (unit + 1) * EACH + (unit == 7)))
            assert unreadable > 0 or not missing or at < store.min_offset("B", 0)
        read(store, 0, count, tags="none")
        if unit * EACH > 0:
            assert store.get("B", 0, unit * EACH + 6)[0].queue_offset == unit * EACH + 6


@pytest.mark.parametrize("seed", range(20))
def test_any_damage_leaves_reads_within_the_queue(seed: int, path: Path) -> None:
    rng = random.Random(seed)
    kinds: list[Callable[[], bytes]] = [lambda: rng.randbytes(rng.randrange(1, 60)), lambda: bytes(rng.randrange(1, 200)),
                                        lambda: b"\xff" * rng.randrange(1, 20)]
    for _ in range(rng.randrange(1, 6)):
        unit = rng.randrange(BATCHES)
        change(path, unit, 0, rng.choice(kinds)()[:UNIT * (UNITS - unit % UNITS)])
    with MessageStore.open(path, **SIZES) as store:
        if store.max_offset("B", 0) == BATCHES * EACH:
            found, unreadable = read(store, count=rng.choice((1, 7, 32)))
            assert unreadable > 0 or found == ALL
