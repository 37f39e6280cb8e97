"""The constants of _layout.pxd are the only ones, the encoder keeps to them, and layout.py describes broken bytes."""
import re
from pathlib import Path

import pytest

import rmq_store.codec
from rmq_store.codec import _layout, layout
from rmq_store.codec._codec import encode_blank, encode_record
from rmq_store.codec.batch import encode_batch
from rmq_store.codec.message_id import host_bytes
from rmq_store.config import values

CODEC = Path(rmq_store.codec.__path__[0])


ROOT = CODEC.parent
SOURCE = "rmq_store/codec/_layout.pxd"
# A place in a record, an entry or a header that is written as a number; a magic code; the sizes of entries. Sizes that limit
# options stand in config/values.py, and a test below compares them.
LITERALS = {
    ".pyx": [r"rmq_\w*(?:get|put)(?:16|32|64)\([^,\n]*\+ \d+[,)]", r"\b(?:head|unit|entry|record|u) \+ \d+\b"],
    ".py": [r"from_bytes\(\w+\[\d*:\d+\]", r"\b40 \+ 4 \*", r"(?<!\" )(?://|\*) 20\b", r"unpack_from\([^)]*, \d+\)"],
    "": [r"(?i)0x(?:daa320a[7b]|cbd43194)u?\b", r"(?:626843481|626843477|875286124)\b", r"0x7FFFFFFF\)?\.to_bytes",
         r"\\xda\\xa3\\x20", r"(?i)0x726d715f", r"20 if [^\n]*V6[^\n]* else 8"],
}


def test_python_sees_the_constants_of_c():
    text = re.sub(r"#.*", "", (CODEC / "_layout.pxd").read_text(encoding="utf-8"))
    rows = re.findall(r"^    ([A-Z][A-Z0-9_]+) = (-?(?:0x)?[0-9A-Fa-f]+)\s*$", text, re.M)
    found = {name: int(value, 0) for name, value in rows}
    assert {"MAGIC_V1", "RECORD_AT_BODY", "UNIT_AT_TAGS_CODE", "ENTRY_AT_PREVIOUS", "CHECKPOINT_AT_SEAL"} <= set(found)
    assert {name: getattr(_layout, name) for name in found} == found
    stub = (CODEC / "_layout.pyi").read_text(encoding="utf-8")
    assert re.findall(r"^(\w+): int$", stub, re.M) == list(found)


def test_sizes_follow_from_each_other():
    body = _layout.RECORD_AT_BODY
    assert body + 1 + 2 == _layout.RECORD_FIXED_SIZE and _layout.HOST_V6_SIZE - _layout.HOST_V4_SIZE == _layout.HOST_V6_MORE
    assert _layout.RECORD_PLACED_SIZE == _layout.RECORD_AT_PHYSICAL_OFFSET + 8
    assert _layout.RECORD_TIMED_SIZE == _layout.RECORD_AT_STORE_TIMESTAMP + _layout.HOST_V6_MORE + 8
    assert len(encode_batch([b""])) == _layout.ELEMENT_FIXED_SIZE
    assert all(code[0] == _layout.MAGIC_FIRST_BYTE for code in layout.MAGIC_BYTES)
    assert layout.CHECKPOINT[-1].offset + 8 == _layout.CHECKPOINT_FIELDS_SIZE
    assert layout.CHECKPOINT_SEAL.to_bytes(8, "big") == b"rmq_flus"


def test_options_know_the_sizes_of_entries():
    assert (values.QUEUE_ENTRY_SIZE, values.INDEX_ENTRY_SIZE) == (_layout.UNIT_SIZE, _layout.INDEX_ENTRY_SIZE)
    assert values.index_file_size(0, 0) == _layout.INDEX_HEADER_SIZE
    assert values.index_file_size(1, 0) - values.index_file_size(0, 0) == _layout.INDEX_SLOT_SIZE


def code_of(path):
    """A source without comments and docstrings, line by line."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r'"""(?:(?!""")[\s\S])*"""', lambda m: "\n" * m[0].count("\n"), text)
    return [line.split("  #")[0] if not line.lstrip().startswith("#") else "" for line in text.split("\n")]


def literals(path, kind):
    patterns = [re.compile(p) for p in LITERALS.get(".pyx" if kind == ".pxd" else kind, []) + LITERALS[""]]
    return [(n, line.strip()) for n, line in enumerate(code_of(path), 1) if any(p.search(line) for p in patterns)]


def test_no_other_file_has_a_place_or_a_code_as_a_number():
    found = []
    for path in sorted(ROOT.rglob("*")):
        name = str(path.relative_to(ROOT.parent))
        if path.suffix in (".py", ".pyx", ".pxd") and name != SOURCE and not name.startswith("rmq_store/bench/"):
            found += [f"{name}:{n}: {line}" for n, line in literals(path, path.suffix)]
    assert found == []


@pytest.mark.parametrize(("kind", "line"), [
    (".pyx", "    rmq_put32(data + 20, size)"), (".pyx", "code = rmq_get64(u + 12)"), (".pxd", "MAGIC = 0xDAA320A7"),
    (".pyx", "return magic == 0xDAA320A7u"), (".pyx", "size = rmq_ha_get32(at + 4)"),
    (".py", "if int.from_bytes(head[4:8], 'big') == 5:"), (".py", "size = 40 + 4 * slots + 20 * entries"),
    (".py", "first = start // 20"), (".py", "MAGIC_V1 = -626843481"),
])
def test_such_a_number_is_found(tmp_path, kind, line):
    path = tmp_path / f"x{kind}"
    path.write_text(f"# {line}\n{line}\n", encoding="utf-8")
    assert literals(path, kind) == [(2, line.strip())]


@pytest.mark.parametrize("name", layout.LAYOUTS)
def test_fields_lie_one_behind_the_other(name):
    at = 0
    for number, field in enumerate(layout.LAYOUTS[name], 1):
        assert field.number == number
        if at is not None:
            assert field.offset == at
            at = None if field.size is None else at + field.size
    sizes = {"blank": _layout.BLANK_SIZE, "consume_queue_unit": _layout.UNIT_SIZE,
             "index_header": _layout.INDEX_HEADER_SIZE, "index_slot": _layout.INDEX_SLOT_SIZE,
             "index_entry": _layout.INDEX_ENTRY_SIZE}
    if name in sizes:
        assert at == sizes[name]


def test_the_encoder_puts_every_field_where_the_table_says():
    data = encode_record("topic", b"some body", queue_id=0x11121314, queue_offset=0x2122232425262728,
                         physical_offset=0x3132333435363738, flag=0x41424344, sys_flag=0x51525354 & ~0x30,
                         born_timestamp=0x6162636465666768, born_host="1.2.3.4:5", store_timestamp=0x7172737475767778,
                         store_host="6.7.8.9:10", reconsume_times=0x12345678, prepared_transaction_offset=0x1A2A3A4A5A6A7A0A,
                         properties={"k": "v"})
    values = {
        "totalSize": len(data), "magicCode": _layout.MAGIC_V1, "queueId": 0x11121314, "flag": 0x41424344,
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
