"""Byte layouts of every file of a store: field numbers, names, offsets, sizes, meanings, magic codes, flag bits.

One table for the documents, for `rmqstore dump --hex` and for people who read bytes by hand. _layout.pxd names the offsets and
the codes, for C and for Python; this table adds numbers, sizes and meanings. Pure data and pure functions, any thread. No
function here raises because of what the bytes say: its job is to describe a broken record.

    CommitLog record, both hosts IPv4 (each IPv6 host moves what follows by 12 bytes):

    0         4         8         12        16        20                  28                  36        40
    +---------+---------+---------+---------+---------+-------------------+-------------------+---------+
    |totalSize|magicCode| bodyCRC | queueId |  flag   |    queueOffset    |  physicalOffset   | sysFlag |
    +---------+---------+---------+---------+---------+-------------------+-------------------+---------+
    40                  48                  56                  64                  72        76
    +-------------------+-------------------+-------------------+-------------------+---------+
    |   bornTimestamp   |     bornHost      |  storeTimestamp   | storeHostAddress  |reconsume|
    +-------------------+-------------------+-------------------+-------------------+---------+
    76                  84         88         88+b     +1|2      +t         +2          +p
    +-------------------+----------+----------+--------+---------+----------+------------+
    |  preparedTxOffset |bodyLength|  body b  |topicLen| topic t |propsLen  |properties p|
    +-------------------+----------+----------+--------+---------+----------+------------+

All integers are big-endian and signed. Source: CommitLog, MessageExtEncoder, ConsumeQueue, ConsumeQueueExt, IndexHeader,
IndexFile, StoreCheckpoint, MessageDecoder of Apache RocketMQ 4.9.8 and 5.3.3.
"""
import zlib
from typing import Literal

from rmq_store.codec import _layout as c
from rmq_store.codec.message_id import host_text
from rmq_store.fields import NamedTuple

Compat = Literal["4.9", "5.x"]  # whose rules to follow where the versions differ

MAGIC_NAMES = {c.MAGIC_V1: "message, version 1", c.MAGIC_V2: "message, version 2", c.MAGIC_BLANK: "end of file"}
MAGIC_BYTES = tuple(code.to_bytes(4, "big", signed=True) for code in (c.MAGIC_V1, c.MAGIC_V2))     # as they lie in a record
TRANSACTION_NAMES = {c.TRANSACTION_PREPARED: "PREPARED", c.TRANSACTION_COMMIT: "COMMIT", c.TRANSACTION_ROLLBACK: "ROLLBACK"}
COMPRESSION_NAMES = {0x100: "LZ4", 0x200: "ZSTD", 0x300: "ZLIB"}
FLAG_NAMES = {
    c.FLAG_COMPRESSED: "COMPRESSED", c.FLAG_MULTI_TAGS: "MULTI_TAGS", c.FLAG_BORN_V6: "BORNHOST_V6",
    c.FLAG_STORE_V6: "STOREHOSTADDRESS_V6", c.FLAG_NEED_UNWRAP: "NEED_UNWRAP", c.FLAG_INNER_BATCH: "INNER_BATCH",
}

EXT_ADDRESS_MAX = c.EXT_HASH_MIN - 1      # a tagsCode up to this one is an address in the extension files
CHECKPOINT_SEAL = c.CHECKPOINT_SEAL_HIGH << 32 | c.CHECKPOINT_SEAL_LOW


class Field(NamedTuple):
    """One field. `offset` is for IPv4 hosts, None where it depends on what precedes; `size` None: its length field says it."""

    number: int
    name: str
    offset: int | None
    size: int | None
    meaning: str


class FieldValue(NamedTuple):
    """One field found in given bytes: `offset` from their start, `data` as it lies there, `meaning` in words."""

    number: int
    name: str
    offset: int
    data: bytes
    meaning: str


RECORD = (
    Field(1, "totalSize", c.RECORD_AT_SIZE, 4, "length of the whole record, this field included"),
    Field(2, "magicCode", c.RECORD_AT_MAGIC, 4, "kind and version of the record"),
    Field(3, "bodyCRC", c.RECORD_AT_BODY_CRC, 4, "CRC-32 of the body & 0x7fffffff, 0 for an empty one"),
    Field(4, "queueId", c.RECORD_AT_QUEUE_ID, 4, "queue of the topic"),
    Field(5, "flag", c.RECORD_AT_FLAG, 4, "the user's, opaque to the store"),
    Field(6, "queueOffset", c.RECORD_AT_QUEUE_OFFSET, 8, "index in its queue; 0 in prepared and rollback records"),
    Field(7, "physicalOffset", c.RECORD_AT_PHYSICAL_OFFSET, 8, "where this record lies in the whole log"),
    Field(8, "sysFlag", c.RECORD_AT_SYS_FLAG, 4, "compression, transaction, host widths"),
    Field(9, "bornTimestamp", c.RECORD_AT_BORN_TIMESTAMP, 8, "milliseconds since 1970, the producer's clock"),
    Field(10, "bornHost", c.RECORD_AT_BORN_HOST, 8, "the producer's address and port; 20 bytes with IPv6"),
    Field(11, "storeTimestamp", c.RECORD_AT_STORE_TIMESTAMP, 8, "milliseconds since 1970, taken under the put lock"),
    Field(12, "storeHostAddress", c.RECORD_AT_STORE_HOST, 8, "the store's address and port; 20 bytes with IPv6"),
    Field(13, "reconsumeTimes", c.RECORD_AT_RECONSUME_TIMES, 4, "how often it was consumed in vain"),
    Field(14, "preparedTransactionOffset", c.RECORD_AT_PREPARED_OFFSET, 8, "physical offset of the half message, else 0"),
    Field(15, "bodyLength", c.RECORD_AT_BODY_SIZE, 4, "bytes of the body"),
    Field(16, "body", c.RECORD_AT_BODY, None, "as sent; compressed if sysFlag says so"),
    Field(17, "topicLength", None, 1, "bytes of the topic; two bytes in a version 2 record"),
    Field(18, "topic", None, None, "UTF-8"),
    Field(19, "propertiesLength", None, 2, "bytes of the properties"),
    Field(20, "properties", None, None, "name 0x01 value 0x02 name 0x01 value ..."),
)
BLANK = (
    Field(1, "totalSize", c.RECORD_AT_SIZE, 4, "all that is left of the file"),
    Field(2, "magicCode", c.RECORD_AT_MAGIC, 4, "end of file"),
)
CONSUME_QUEUE_UNIT = (
    Field(1, "commitLogOffset", c.UNIT_AT_PHYSICAL_OFFSET, 8, "physical offset of the record"),
    Field(2, "size", c.UNIT_AT_SIZE, 4, "totalSize of the record; 2147483647 in filler units"),
    Field(3, "tagsCode", c.UNIT_AT_TAGS_CODE, 8, "hash of TAGS, or delivery time, or address in the extension files"),
)
CONSUME_QUEUE_EXT_UNIT = (
    Field(1, "size", c.EXT_AT_SIZE, 2, "bytes of the unit, this field included; -1 ends the file"),
    Field(2, "tagsCode", c.EXT_AT_TAGS_CODE, 8, "hash of TAGS"),
    Field(3, "msgStoreTime", c.EXT_AT_STORE_TIMESTAMP, 8, "storeTimestamp of the record"),
    Field(4, "bitMapSize", c.EXT_AT_BIT_MAP_SIZE, 2, "bytes of the filter bit map"),
    Field(5, "filterBitMap", c.EXT_AT_BIT_MAP, None, "bloom filter of the consumer groups"),
)
INDEX_HEADER = (
    Field(1, "beginTimestamp", c.INDEX_AT_BEGIN_TIMESTAMP, 8, "storeTimestamp of the first entry"),
    Field(2, "endTimestamp", c.INDEX_AT_END_TIMESTAMP, 8, "storeTimestamp of the last entry"),
    Field(3, "beginPhyOffset", c.INDEX_AT_BEGIN_PHYSICAL, 8, "physical offset of the first entry"),
    Field(4, "endPhyOffset", c.INDEX_AT_END_PHYSICAL, 8, "physical offset of the last entry"),
    Field(5, "hashSlotCount", c.INDEX_AT_SLOT_COUNT, 4, "slots that were empty when used"),
    Field(6, "indexCount", c.INDEX_AT_COUNT, 4, "number of the next entry, from 1"),
)
INDEX_SLOT = (
    Field(1, "newestEntry", 0, 4, "number of the newest entry of the slot, 0 none"),
)
INDEX_ENTRY = (
    Field(1, "keyHash", c.ENTRY_AT_KEY_HASH, 4, "non-negative hash of topic#key"),
    Field(2, "phyOffset", c.ENTRY_AT_PHYSICAL_OFFSET, 8, "physical offset of the record"),
    Field(3, "timeDiff", c.ENTRY_AT_TIME_DIFF, 4, "seconds from the file's beginTimestamp"),
    Field(4, "prevIndex", c.ENTRY_AT_PREVIOUS, 4, "entry before this one in the slot, 0 none"),
)
CHECKPOINT = (
    Field(1, "physicMsgTimestamp", c.CHECKPOINT_AT_PHYSICAL, 8, "storeTimestamp of the newest record known to be flushed"),
    Field(2, "logicsMsgTimestamp", c.CHECKPOINT_AT_LOGICS, 8, "storeTimestamp of the newest record in a consume queue"),
    Field(3, "indexMsgTimestamp", c.CHECKPOINT_AT_INDEX, 8, "endTimestamp of the newest full index file that was flushed"),
    Field(4, "masterFlushedOffset", c.CHECKPOINT_AT_MASTER_FLUSHED, 8, "flushed offset the master told; 5.x"),
    Field(5, "confirmPhyOffset", c.CHECKPOINT_AT_CONFIRM, 8, "confirm offset; 5.x"),
    Field(6, "flushedOffset", c.CHECKPOINT_AT_FLUSHED, 8, "this store alone: log offset up to which the log is on the device"),
    Field(7, "flushedSeal", c.CHECKPOINT_AT_SEAL, 8,
          f"this store alone: physicMsgTimestamp XOR flushedOffset XOR 0x{CHECKPOINT_SEAL:016X}, else no offset is known"),
)
BATCH_ELEMENT = (
    Field(1, "totalSize", c.ELEMENT_AT_SIZE, 4, "length of the element, this field included"),
    Field(2, "magicCode", c.ELEMENT_AT_MAGIC, 4, "0"),
    Field(3, "bodyCRC", c.ELEMENT_AT_BODY_CRC, 4, "0: the store computes it"),
    Field(4, "flag", c.ELEMENT_AT_FLAG, 4, "the user's, opaque to the store"),
    Field(5, "bodyLength", c.ELEMENT_AT_BODY_SIZE, 4, "bytes of the body"),
    Field(6, "body", c.ELEMENT_AT_BODY, None, "never compressed"),
    Field(7, "propertiesLength", None, 2, "bytes of the properties"),
    Field(8, "properties", None, None, "name 0x01 value 0x02 name 0x01 value ..."),
)
LAYOUTS = {
    "record": RECORD, "blank": BLANK, "consume_queue_unit": CONSUME_QUEUE_UNIT,
    "consume_queue_ext_unit": CONSUME_QUEUE_EXT_UNIT, "index_header": INDEX_HEADER, "index_slot": INDEX_SLOT,
    "index_entry": INDEX_ENTRY, "checkpoint": CHECKPOINT, "batch_element": BATCH_ELEMENT,
}

_CRC_PROPERTY = b"__CRC32#\x01"


def get32(data: bytes | bytearray | memoryview, at: int) -> int:
    """The field of four bytes that begins at `at`."""
    return int.from_bytes(data[at:at + 4], "big", signed=True)


def get64(data: bytes | bytearray | memoryview, at: int) -> int:
    """The field of eight bytes that begins at `at`."""
    return int.from_bytes(data[at:at + 8], "big", signed=True)


def describe(record: bytes | bytearray | memoryview) -> list[FieldValue]:
    """Names every byte of a CommitLog record (or of a blank one), field by field.

    `record` may continue behind the record. Where its lengths cannot be followed, the description ends and its last row has the
    number 0, the name "unreadable", the bytes that are left and the reason as meaning.
    """
    data = bytes(record)
    if len(data) >= c.BLANK_SIZE and get32(data, c.RECORD_AT_MAGIC) == c.MAGIC_BLANK:
        return describe_fields(BLANK, data[:c.BLANK_SIZE])
    rows: list[FieldValue] = []
    values: dict[str, int] = {}
    at = 0
    for field in RECORD:
        size = _record_field_size(field, values)
        if size < 0 or at + size > len(data):
            reason = f"{field.name} needs {size} bytes, {len(data) - at} are there"
            rows.append(FieldValue(0, "unreadable", at, data[at:at + 64], reason))
            return rows
        part = data[at:at + size]
        if field.size in (1, 2, 4, 8) and not field.name.endswith(("Host", "HostAddress")):
            values[field.name] = _int(part)
        rows.append(FieldValue(field.number, field.name, at, part, _meaning(field, part)))
        at += size
        if field.name == "magicCode" and values["magicCode"] not in (c.MAGIC_V1, c.MAGIC_V2):
            rows.append(FieldValue(0, "unreadable", at, data[at:at + 64], "not the magic code of a record"))
            return rows
    rows[2] = rows[2]._replace(meaning=_crc_meaning(values["bodyCRC"], rows[15].data))
    if at != values["totalSize"]:
        rows[0] = rows[0]._replace(meaning=f"{values['totalSize']} bytes, but its parts take {at}")
    if rows[19].data[-c.CRC_PROPERTY_SIZE:].startswith(_CRC_PROPERTY):
        rows[19] = rows[19]._replace(meaning=f"{rows[19].meaning} ({_record_crc_meaning(data[:at])})")
    return rows


def describe_fields(layout: tuple[Field, ...], data: bytes | bytearray | memoryview) -> list[FieldValue]:
    """Names the fields of anything with fixed offsets: `describe_fields(layout.INDEX_HEADER, first_40_bytes)`.

    A last field of variable size takes the rest. Fields that the bytes do not reach are left out.
    """
    data = bytes(data)
    rows = []
    for field in layout:
        if field.offset is None or field.offset + (field.size or 0) > len(data):
            break
        part = data[field.offset:] if field.size is None else data[field.offset:field.offset + field.size]
        rows.append(FieldValue(field.number, field.name, field.offset, part, _meaning(field, part)))
    return rows


def sys_flag_text(sys_flag: int) -> str:
    """The set bits by name: `sys_flag_text(0x119)` is "COMPRESSED COMMIT BORNHOST_V6 LZ4"; "none" for 0."""
    names = [name for bit, name in FLAG_NAMES.items() if sys_flag & bit]
    if sys_flag & c.FLAG_TRANSACTION:
        names.insert(sum(sys_flag & bit != 0 for bit in (1, 2)), TRANSACTION_NAMES[sys_flag & c.FLAG_TRANSACTION])
    kind = sys_flag & c.FLAG_COMPRESSION_TYPE
    if kind:
        names.append(COMPRESSION_NAMES.get(kind, f"compression type {kind >> 8}"))
    unused = sys_flag & ~0x7FF & 0xFFFFFFFF
    if unused:
        names.append(f"0x{unused:x}")
    return " ".join(names) or "none"


def time_text(milliseconds: int) -> str:
    """Milliseconds since 1970 as UTC in ISO form; what no calendar holds stays a number."""
    from datetime import UTC, datetime, timedelta  # for people who look into a file: a store needs no calendar

    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds")
    except OverflowError:
        return f"{milliseconds} ms"


def _int(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def _record_field_size(field: Field, values: dict[str, int]) -> int:
    # In a record only the hosts, the topic length and what a length field announces differ from the table.
    if field.name == "bornHost":
        return c.HOST_V6_SIZE if values["sysFlag"] & c.FLAG_BORN_V6 else c.HOST_V4_SIZE
    if field.name == "storeHostAddress":
        return c.HOST_V6_SIZE if values["sysFlag"] & c.FLAG_STORE_V6 else c.HOST_V4_SIZE
    if field.name == "topicLength":
        return 2 if values["magicCode"] == c.MAGIC_V2 else 1
    if field.size is None:
        return values[field.name + "Length"]
    return field.size


def _meaning(field: Field, data: bytes) -> str:
    # The value in words. Falls back to what the table says of the field.
    name = field.name
    if name == "magicCode":
        return MAGIC_NAMES.get(_int(data), "0: in a batch element" if _int(data) == 0 else "unknown")
    if name == "sysFlag":
        return sys_flag_text(_int(data))
    if name.endswith(("Timestamp", "StoreTime")):
        return time_text(_int(data))
    if name in ("bornHost", "storeHostAddress"):
        return host_text(data)
    if name == "topic":
        return data.decode("utf-8", "backslashreplace")
    if name == "properties":
        text = data.decode("utf-8", "backslashreplace")
        return " ".join(p.replace("\x01", "=", 1) for p in text.split("\x02") if p) or "none"
    if field.size is None:
        return f"{len(data)} bytes, {field.meaning}"
    return f"{_int(data)}: {field.meaning}"


def _crc_meaning(crc: int, body: bytes) -> str:
    found = zlib.crc32(body) & 0x7FFFFFFF if body else 0
    return "matches the body" if crc == found else f"WRONG: the body's is 0x{found:08x}"


def _record_crc_meaning(record: bytes) -> str:
    digits = record[-11:-1][::-1]
    found = zlib.crc32(record[:-c.CRC_PROPERTY_SIZE]) & 0x7FFFFFFF
    return "record CRC right" if digits.isdigit() and int(digits) == found else f"record CRC WRONG: it is {found}"
