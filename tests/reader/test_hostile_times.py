"""Store times that no clock gave: a search takes such a record for one that leads nowhere, as upstream's does."""
import struct
from pathlib import Path

import pytest

from rmq_store import MessageStore

STORE_TIMESTAMP = 56        # within a record with an IPv4 born host


@pytest.mark.parametrize("when", [-(1 << 63), -(1 << 32), -28, -2, -1])
@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_a_negative_store_time_is_no_error_of_the_device(tmp_path: Path, when: int, damaged: int) -> None:
    with MessageStore.open(tmp_path / "s", segment_size_bytes=65536) as store:
        records = [store.put("T", b"x", keys="k") for _ in range(3)]
    with open(tmp_path / "s" / "commitlog" / f"{0:020d}", "r+b") as log:
        log.seek(records[damaged].offset + STORE_TIMESTAMP)
        log.write(struct.pack(">q", when))
    with MessageStore.open(tmp_path / "s", readonly=True) as store:
        assert store.message_at(records[damaged].offset).store_timestamp == when
        for boundary in ("nearest", "lower", "upper"):
            for timestamp in (when, 0, records[0].store_timestamp, records[2].store_timestamp + 1):
                assert 0 <= store.offset_by_time("T", 0, timestamp, boundary=boundary) <= 3
        others = [r.offset for i, r in enumerate(records) if i != damaged]
        assert [m.offset for m in store.query_key("T", "k")] == others
