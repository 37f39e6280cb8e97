"""The table of layout.py is the kernel's: constants of _record.pxd, positions of the encoder; and it reads broken bytes."""
import re
from pathlib import Path

import pytest

import rmq_store.codec
from rmq_store.codec import layout
from rmq_store.codec._codec import encode_blank, encode_record
from rmq_store.codec.batch import encode_batch
from rmq_store.codec.message_id import host_bytes

CODEC = Path(rmq_store.codec.__path__[0])


def enum_constants(name):
    """NAME = number of every enum in a .pxd, comments left out."""
    text = re.sub(r"#.*", "", (CODEC / name).read_text(encoding="utf-8"))
    found = re.findall(r"^    ([A-Z][A-Z0-9_]+) = (-?(?:0x)?[0-9A-Fa-f]+)\s*$", text, re.M)
    return {key: int(value, 0) for key, value in found}


def test_constants_are_those_of_the_kernel():
    kernel = enum_constants("_record.pxd")
    assert {"MAGIC_V1", "MAGIC_V2", "MAGIC_BLANK", "FLAG_BORN_V6", "RECORD_FIXED_SIZE", "CRC_PROPERTY_SIZE"} <= set(kernel)
    for name, value in kernel.items():
        if not name.startswith("RECORD_") or name == "RECORD_FIXED_SIZE":
            assert getattr(layout, name) == value, name
    assert enum_constants("_batch.pxd")["BATCH_FIXED_SIZE"] == len(encode_batch([b""]))


@pytest.mark.parametrize("name", layout.LAYOUTS)
def test_fields_lie_one_behind_the_other(name):
    at = 0
    for number, field in enumerate(layout.LAYOUTS[name], 1):
        assert field.number == number
        if at is not None:
            assert field.offset == at
            at = None if field.size is None else at + field.size
    sizes = {"blank": layout.BLANK_SIZE, "consume_queue_unit": layout.CONSUME_QUEUE_UNIT_SIZE,
             "index_header": layout.INDEX_HEADER_SIZE, "index_slot": layout.INDEX_SLOT_SIZE,
             "index_entry": layout.INDEX_ENTRY_SIZE}
    if name in sizes:
        assert at == sizes[name]


def test_the_encoder_puts_every_field_where_the_table_says():
    data = encode_record("topic", b"some body", queue_id=0x11121314, queue_offset=0x2122232425262728,
                         physical_offset=0x3132333435363738, flag=0x41424344, sys_flag=0x51525354 & ~0x30,
                         born_timestamp=0x6162636465666768, born_host="1.2.3.4:5", store_timestamp=0x7172737475767778,
                         store_host="6.7.8.9:10", reconsume_times=0x12345678, prepared_transaction_offset=0x1A2A3A4A5A6A7A0A,
                         properties={"k": "v"})
    values = {
        "totalSize": len(data), "magicCode": layout.MAGIC_V1, "queueId": 0x11121314, "flag": 0x41424344,
        "queueOffset": 0x2122232425262728, "physicalOffset": 0x3132333435363738, "sysFlag": 0x51525344,
        "bornTimestamp": 0x6162636465666768, "storeTimestamp": 0x7172737475767778, "reconsumeTimes": 0x12345678,
        "preparedTransactionOffset": 0x1A2A3A4A5A6A7A0A, "bodyLength": 9,
        "bornHost": int.from_bytes(host_bytes("1.2.3.4:5"), "big"),
        "storeHostAddress": int.from_bytes(host_bytes("6.7.8.9:10"), "big"),
    }
    for field in layout.RECORD[:15]:
        part = data[field.offset:field.offset + field.size]
        if field.name != "bodyCRC":
            assert int.from_bytes(part, "big", signed=True) == values[field.name], field.name
    assert data[88:97] == b"some body"


def test_describe_names_every_byte():
    data = encode_record("topic", b"some body", sys_flag=0x119, properties={"k": "v", "l": "w"}, born_host="[::1]:7",
                         crc_property=True)
    rows = {row.name: row for row in layout.describe(data + b"behind")}
    assert b"".join(row.data for row in rows.values()) == data
    assert rows["totalSize"].meaning.startswith(f"{len(data)}:")
    assert rows["magicCode"].meaning == "message, version 1"
    assert rows["bodyCRC"].meaning == "matches the body"
    assert rows["sysFlag"].meaning == "COMPRESSED COMMIT BORNHOST_V6 LZ4"
    assert rows["bornHost"].meaning == "[::1]:7" and len(rows["bornHost"].data) == 20
    assert rows["storeTimestamp"].offset == 68
    assert rows["storeTimestamp"].meaning == "1970-01-01T00:00:00.000+00:00"
    assert rows["topic"].meaning == "topic"
    assert rows["properties"].meaning.startswith("k=v l=w __CRC32#=") and "record CRC right" in rows["properties"].meaning


def test_describe_reads_broken_records():
    data = bytearray(encode_record("topic", b"some body", crc_property=True))
    data[90] ^= 1
    rows = {row.name: row.meaning for row in layout.describe(data)}
    assert rows["bodyCRC"].startswith("WRONG") and "record CRC WRONG" in rows["properties"]
    data[0:4] = (5000).to_bytes(4, "big")
    assert layout.describe(data)[0].meaning == f"5000 bytes, but its parts take {len(data)}"
    data[84:88] = (-1).to_bytes(4, "big", signed=True)
    last = layout.describe(data)[-1]
    assert (last.number, last.name) == (0, "unreadable") and "body needs -1 bytes" in last.meaning
    for cut in range(len(data)):
        rows = layout.describe(data[:cut])
        assert rows[-1].number == 0 and b"".join(row.data for row in rows)[:60] == data[:cut][:60]
    data[4:8] = b"\0\0\0\1"
    assert layout.describe(data)[-1].meaning == "not the magic code of a record"
    assert len(layout.describe(data)) == 3


def test_other_layouts_are_described_too():
    rows = layout.describe(encode_blank(77))
    assert [row.meaning for row in rows] == ["77: all that is left of the file", "end of file"]
    unit = (5).to_bytes(8, "big") + (185).to_bytes(4, "big") + (-2147483648).to_bytes(8, "big", signed=True)
    rows = layout.describe_fields(layout.CONSUME_QUEUE_UNIT, unit)
    assert [(row.offset, row.meaning.partition(":")[0]) for row in rows] == [(0, "5"), (8, "185"), (12, "-2147483648")]
    ext = b"\0\x16" + bytes(16) + b"\0\2" + b"\xab\xcd"
    rows = layout.describe_fields(layout.CONSUME_QUEUE_EXT_UNIT, ext)
    assert rows[-1].data == b"\xab\xcd" and len(rows) == 5
    rows = layout.describe_fields(layout.CHECKPOINT, (1640832578156).to_bytes(8, "big") + bytes(4))
    assert [row.meaning for row in rows] == ["2021-12-30T02:49:38.156+00:00"]


@pytest.mark.parametrize(("sys_flag", "text"), [
    (0, "none"), (2, "MULTI_TAGS"), (3, "COMPRESSED MULTI_TAGS"), (4, "PREPARED"), (0xC, "ROLLBACK"),
    (0x30, "BORNHOST_V6 STOREHOSTADDRESS_V6"), (0xC0, "NEED_UNWRAP INNER_BATCH"), (0x301, "COMPRESSED ZLIB"),
    (0x500, "compression type 5"), (-2**31, "0x80000000"),
])
def test_sys_flag_by_name(sys_flag, text):
    assert layout.sys_flag_text(sys_flag) == text


def test_times_no_calendar_holds():
    assert layout.time_text(2**63 - 1) == "9223372036854775807 ms"
    assert layout.time_text(1640832578156) == "2021-12-30T02:49:38.156+00:00"
