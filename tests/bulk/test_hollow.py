"""Heads of records that claim gibibytes of nothing: what is read is bounded by what is there, not by what they say."""
import os
import struct

import pytest

from rmq_store.access.bulk._columns import Split
from rmq_store.base.io._io import ProbeIo
from rmq_store.errors import CorruptionError
from rmq_store.spark.splits import pieces_of
from rmq_store.spark.stores import Broker, log_files
from tests.bulk.conftest import rows_of

HUGE, CLAIM, COUNT = (1 << 31) - 4096, 0x7F00_0000, 40
NARROW = ("physicalOffset", "storeSize")


def hollow(log, claim, body):
    """A log of three records, a hole, false heads, a hole, and one more record."""
    file = log(size=HUGE)
    for _ in range(3):
        file.add()
    head = bytes(file.data[:91])
    file.path.write_bytes(bytes(file.data))
    with open(file.path, "r+b") as f:
        f.truncate(HUGE)
        for i in range(COUNT):
            at = (1 << 20) + i * 100
            f.seek(at)
            f.write(struct.pack(">i", claim) + head[4:28] + struct.pack(">q", at) + head[36:84] + struct.pack(">i", body))
        f.seek(HUGE - 4096)
        f.write(file.image(HUGE - 4096))
    return file


@pytest.mark.parametrize("claim", [CLAIM, 7 << 20])
@pytest.mark.parametrize("body", [4, -1, 1 << 20, 0x7FFF_FFFF])
@pytest.mark.parametrize("begin", [0, 1 << 20, 1 << 30])
@pytest.mark.parametrize("mapped", [False, True])
def test_what_heads_claim_is_not_read(log, claim, body, begin, mapped):
    file = hollow(log, claim, body)
    io = ProbeIo(keep_bytes=False)
    split = Split(file.path, 0, begin, HUGE, mapped=mapped, io=io)
    rows, bad = rows_of(split, NARROW)
    assert [r["physicalOffset"] for r in rows] == (file.places if begin == 0 else []) + [HUGE - 4096]
    assert bad or begin == 1 << 30
    assert sum(call.length for call in io.trace() if call.kind == "pread") < 8 * (8 << 20)


def test_heads_whose_parts_add_up_are_read_once(log):
    file = hollow(log, 256 << 20, (256 << 20) - 91)
    io = ProbeIo(keep_bytes=False)
    rows, bad = rows_of(Split(file.path, 0, 0, HUGE, verify="crc", mapped=False, io=io), NARROW)
    assert [r["physicalOffset"] for r in rows] == [*file.places, HUGE - 4096] and bad
    assert sum(call.length for call in io.trace() if call.kind == "pread") < HUGE


def test_a_long_record_that_is_there_is_read(log):
    file = log(size=64 << 20)
    file.add()
    file.add(os.urandom(20 << 20))
    file.add(bytes(10 << 20))
    file.add()
    file.write()
    for mapped in (True, False):
        rows, bad = rows_of(file.split(newest=True, verify="crc", mapped=mapped), NARROW)
        assert [r["physicalOffset"] for r in rows] == file.places and not bad


def test_a_file_that_claims_to_be_longer_than_any_log_file_is_damage(tmp_path):
    (tmp_path / "commitlog").mkdir()
    path = tmp_path / "commitlog" / ("0" * 20)
    path.touch()
    try:
        os.truncate(path, (1 << 63) - 4096)
    except OSError:
        pytest.skip("this file system has no files that long")
    with pytest.raises(CorruptionError, match=str(path)):
        pieces_of(Broker("b", str(tmp_path)), log_files(str(tmp_path)), 0, (1 << 63) - 1, 128 << 20)
