"""Nothing is read out of bounds, whatever lengths say: the bytes lie right before a page that may not be touched.

A read beyond them would end the test process with a signal.
"""
import ctypes
import mmap
import random

import pytest

from rmq_store.codec import _layout, layout
from rmq_store.codec._codec import Blank, decode_record, encode_record, java_hash
from rmq_store.codec.batch import decode_batch, encode_batch, expand_batch
from rmq_store.codec.properties import decode_properties
from rmq_store.errors import CorruptionError, MessageIllegal

LENGTHS = (0, 1, 2, 7, 8, 90, 91, 92, 127, 128, 255, 256, 4095, 4096, 32767, 32768, 65535, 2**31 - 1, 2**31, 2**32 - 1)


@pytest.fixture
def before_the_wall():
    """Gives a function that places bytes so that the byte behind them is not readable."""
    libc = ctypes.CDLL(None, use_errno=True)
    area = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    first = ctypes.addressof(ctypes.c_char.from_buffer(area))
    assert libc.mprotect(ctypes.c_void_p(first + mmap.PAGESIZE), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0

    def place(data):
        begin = mmap.PAGESIZE - len(data)
        area[begin:mmap.PAGESIZE] = data
        return memoryview(area)[begin:mmap.PAGESIZE]
    yield place
    libc.mprotect(ctypes.c_void_p(first + mmap.PAGESIZE), ctypes.c_size_t(mmap.PAGESIZE), 3)


def read_all(view):
    """Decodes, and touches everything that a decoded record leads to. Returns what it was."""
    try:
        record = decode_record(view)
    except CorruptionError:
        return None
    if isinstance(record, Blank):
        return record
    inside = len(record.body) + len(record.properties_bytes) + len(record.topic)
    assert record.size <= len(view) and inside < record.size + 1
    dict(record)
    record.body_crc_ok, record.record_crc_ok, record.queue_tags_code()
    return record


def samples():
    return [
        encode_record("topic", b"body", properties={"TAGS": "a", "KEYS": "b c"}),
        encode_record("t" * 200, b"", born_host="[::1]:1", store_host="[::2]:2", crc_property=True),
        encode_record("SCHEDULE_TOPIC_XXXX", b"x" * 300, properties=b"DELAY\x0125"),
        encode_record("t", b""),
    ]


def test_records_cut_short(before_the_wall):
    for data in samples():
        for cut in range(len(data)):
            assert read_all(before_the_wall(data[:cut])) is None
        assert read_all(before_the_wall(data)).size == len(data)


def test_records_with_every_length_wrong(before_the_wall):
    source = random.Random(7)
    for data in samples():
        rows = {row.name: row for row in layout.describe(data)}
        lengths = [rows[name] for name in ("totalSize", "sysFlag", "bodyLength", "topicLength", "propertiesLength")]
        for _ in range(4000):
            bad = bytearray(data)
            for row in source.sample(lengths, source.randint(1, 3)):
                size = len(row.data)
                bad[row.offset:row.offset + size] = (source.choice(LENGTHS) & (1 << 8 * size) - 1).to_bytes(size, "big")
            read_all(before_the_wall(bad[:source.randint(0, len(bad))] if source.random() < 0.3 else bad))


def test_noise_with_a_magic_code(before_the_wall):
    source = random.Random(8)
    for _ in range(20_000):
        size = source.randint(8, 400)
        bad = bytearray(source.randbytes(size))
        bad[0:4] = source.choice((size, size - 1, size + 1, source.choice(LENGTHS))).to_bytes(4, "big")
        bad[4:8] = source.choice((_layout.MAGIC_V1, _layout.MAGIC_V2, _layout.MAGIC_BLANK)).to_bytes(4, "big", signed=True)
        for position in (84, 96, 108):
            if size > position + 4 and source.random() < 0.8:
                bad[position:position + 3] = b"\0\0\0"
        read_all(before_the_wall(bad))


def test_batches(before_the_wall):
    source = random.Random(9)
    good = encode_batch([{"body": b"body", "properties": {"a": "b"}}, b"", {"body": b"x" * 50, "properties": b"a\x01b"}])
    for cut in range(1, len(good)):
        try:
            decode_batch(before_the_wall(good[:cut]))
            assert cut in (30, 52)      # between two messages
        except MessageIllegal:
            pass
    for _ in range(10_000):
        bad = bytearray(good)
        at = source.choice((0, 16, 24, 30, 46, 50, 52, 68, 122))
        size = source.choice((1, 2, 4))
        bad[at:at + size] = (source.choice(LENGTHS) & (1 << 8 * size) - 1).to_bytes(size, "big")
        view = before_the_wall(bad)
        try:
            count = len(decode_batch(view))
            assert expand_batch(view, "t", properties=b"c\x01d").count(b"\xda\xa3\x20\xa7") == count
        except MessageIllegal:
            with pytest.raises(MessageIllegal):
                expand_batch(view, "t")


def test_properties(before_the_wall):
    source = random.Random(10)
    for _ in range(20_000):
        data = bytes(source.choice(b"\x01\x02\x02ab\xe6\xed\xa0\xf0\x90") for _ in range(source.randint(0, 20)))
        decode_properties(before_the_wall(data))


def test_truncated_text_hashes_inside_its_bounds():
    for data in (b"\xe6", b"\xe6\xb6", b"\xf0", b"\xf0\x90\x80", b"\xc2", b"\xed\xa0"):
        assert java_hash(data) == 0xFFFD
