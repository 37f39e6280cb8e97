"""One row for each message of an inner batch, as a consumer gets them: a record of a batch queue holds several. Runs in the
workers.

The kernel makes one row of a record. A record batch without inner batches stays as it is; else the rows of inner batches are
taken as often as they have messages, and the columns that differ are made anew. A batch that cannot be decoded stays one row.
"""
import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from rmq_store.base.io.files import open_regular
from rmq_store.codec._codec import DecodedRecord, body_crc32, decode_record
from rmq_store.codec._layout import FLAG_COMPRESSED, FLAG_COMPRESSION_TYPE, FLAG_INNER_BATCH, FLAG_NEED_UNWRAP
from rmq_store.codec.batch import decode_batch
from rmq_store.codec.compression import inflate
from rmq_store.codec.properties import decode_properties
from rmq_store.errors import CorruptionError, RmqStoreError
from rmq_store.spark.options import ReadOptions
from rmq_store.spark.splits import Piece
from rmq_store.spark.view_columns import ERROR_COLUMN

__all__ = ["NEEDED", "inflating"]

NEEDED = ("sysFlag", "physicalOffset", "storeSize")     # columns of the kernel that tell of inner batches
_OF_RECORD = FLAG_INNER_BATCH | FLAG_NEED_UNWRAP | FLAG_COMPRESSED | FLAG_COMPRESSION_TYPE
_INFLATED = FLAG_COMPRESSED | FLAG_COMPRESSION_TYPE     # bits that go with the compression
_BODY_MAX = 64 << 20
_PART_MAX = 1 << 30         # Arrow counts the bytes of an array with 31 bits


class _Inner(NamedTuple):
    queue_offset: int
    flag: int
    body: bytes
    properties: bytes


def inflating(batch: Any, piece: Piece, options: ReadOptions, buffers: dict[str, Any]) -> Iterator[tuple[Any, Sequence[int]]]:
    """`batch`, a record batch of all rows that `buffers` has, in parts: with the messages of its inner batches, and with
    inflated bodies where the options ask for them; and which row of `buffers` each row of a part is of. A part ends when its
    bodies have batchBytes, whatever they had in the log. Raises OSError, CorruptionError (a body that does not inflate)."""
    flags = memoryview(buffers["sysFlag"]).cast("i")
    inflates = FLAG_COMPRESSED if options.decompress else 0
    if not any(flag & (FLAG_INNER_BATCH | inflates) for flag in flags):
        yield batch, range(len(flags))
        return
    most = min(options.batch_bytes, _PART_MAX)
    bodies = batch.column("body") if inflates and "body" in batch.schema.names else None
    begin = size = 0
    found: dict[int, list[_Inner]] = {}
    made: dict[int, bytes | None] = {}
    for i, flag in enumerate(flags):
        if flag & FLAG_INNER_BATCH and (messages := _messages(piece, buffers, i)):
            found[i] = messages
            size += sum(len(m.body) + len(m.properties) for m in messages)
        elif flag & inflates and bodies is not None:
            made[i] = _inflate(bodies[i].as_py(), flag, piece, options, buffers, i)
            size += len(made[i] or b"")
        if size >= most:
            yield from _part(batch, begin, i + 1, options, flags, found, made, piece, buffers)
            begin, size, found, made = i + 1, 0, {}, {}
    if begin < len(flags):
        yield from _part(batch, begin, len(flags), options, flags, found, made, piece, buffers)


def _inflate(body: bytes, flag: int, piece: Piece, options: ReadOptions, buffers: dict[str, Any], i: int) -> bytes | None:
    """None: it does not inflate, and onCorrupt is not fail."""
    try:
        return inflate(body, flag, _BODY_MAX)
    except CorruptionError as error:
        if options.on_corrupt != "fail":
            return None
        offset = memoryview(buffers["physicalOffset"]).cast("q")[i]
        expected = f"a body that is compressed as its sysFlag 0x{flag:x} says ({error.expected})"
        wrong = CorruptionError(piece.path, offset, expected, error.found)
        wrong.cure = ("the producer of this message set a wrong sysFlag, or the body is damaged: read it with "
                      "decompress=false, or leave such messages out with onCorrupt=skip or emit")
        raise wrong from None


def _part(batch: Any, begin: int, end: int, options: ReadOptions, flags: Any, found: dict[int, list[_Inner]],
          made: dict[int, bytes | None], piece: Piece, buffers: dict[str, Any]) -> Iterator[tuple[Any, Sequence[int]]]:
    """Rows [begin, end) of a batch; behind them what does not inflate, with onCorrupt=emit."""
    import pyarrow as pa

    bad = [i for i, body in made.items() if body is None]
    part: Any = batch.slice(begin, end - begin)
    columns = list(part.columns)
    for n, field in enumerate(part.schema):
        if field.name == "body" and made:
            columns[n] = pa.array([made.get(i, body) for i, body in enumerate(part.column(n).to_pylist(), begin)], field.type)
        elif field.name == "sysFlag" and options.decompress:    # a copy of it must not be inflated once more
            cleared = [flag & ~_INFLATED if flag & FLAG_COMPRESSED else flag for flag in flags[begin:end]]
            columns[n] = pa.array(cleared, field.type)
    part = pa.RecordBatch.from_arrays(columns, schema=part.schema)
    rows: Sequence[int] = range(begin, end)
    if found:
        part, rows = _unwrapped(part, rows, options, flags, found)
    if bad:
        keep = [i for i, row in enumerate(rows) if row not in bad]
        part, rows = part.take(pa.array(keep, pa.int64())), [rows[i] for i in keep]
    yield part, rows
    if options.on_corrupt == "emit":
        offsets, sizes = memoryview(buffers["physicalOffset"]).cast("q"), memoryview(buffers["storeSize"]).cast("i")
        for i in bad:
            known = {"brokerName": piece.broker, "commitLogFile": piece.path, "physicalOffset": offsets[i],
                     "storeSize": sizes[i], ERROR_COLUMN: "body does not inflate"}
            yield pa.RecordBatch.from_arrays([pa.array([known.get(f.name)], f.type) for f in batch.schema],
                                             schema=batch.schema), [i]


def _unwrapped(batch: Any, range_of: Sequence[int], options: ReadOptions, flags: Any,
               found: dict[int, list[_Inner]]) -> tuple[Any, Sequence[int]]:
    """The rows of `range_of`, which `batch` has, with the messages of inner batches."""
    import pyarrow as pa

    rows: list[int] = []
    own: list[_Inner | None] = []
    for i in range_of:
        of_it = found.get(i, [None])
        rows += [i] * len(of_it)
        own += of_it
    taken = batch.take(pa.array([i - range_of[0] for i in rows], pa.int64()))
    columns = [_column(field, taken.column(n), options, flags, rows, own) for n, field in enumerate(batch.schema)]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema), rows


def _messages(piece: Piece, buffers: dict[str, Any], i: int) -> list[_Inner]:
    """The messages of the inner batch in row `i`; none where it cannot be decoded."""
    offset, size = memoryview(buffers["physicalOffset"]).cast("q")[i], memoryview(buffers["storeSize"]).cast("i")[i]
    fd = open_regular(piece.path)
    try:
        raw = os.pread(fd, size, offset - piece.start)
    finally:
        os.close(fd)
    try:
        record: Any = decode_record(raw)
        if not isinstance(record, DecodedRecord):
            return []
        body = bytes(record.body)
        elements = decode_batch(inflate(body, record.sys_flag, _BODY_MAX) if record.sys_flag & FLAG_COMPRESSED else body)
    except (RmqStoreError, ValueError):
        return []
    return [_Inner(record.queue_offset + k, e.flag, bytes(e.body), e.properties) for k, e in enumerate(elements)]


def _column(field: Any, taken: Any, options: ReadOptions, flags: Any, rows: list[int], own: list[_Inner | None]) -> Any:
    import pyarrow as pa

    makers: dict[str, Callable[[_Inner], Any]] = {
        "queueOffset": lambda m: m.queue_offset, "flag": lambda m: m.flag, "body": lambda m: m.body,
        "bodyCrc": lambda m: body_crc32(m.body), "tags": lambda m: decode_properties(m.properties).get("TAGS"),
        "keys": lambda m: decode_properties(m.properties).get("KEYS"), "properties": lambda m: _properties(m, options)}
    if field.name == "sysFlag":         # a message alone is none of these
        return pa.array([flags[i] & ~_OF_RECORD if m is not None else value for i, m, value in zip(
            rows, own, taken.to_pylist(), strict=True)], field.type)
    make = makers.get(field.name)
    if make is None:
        return taken
    return pa.array([make(m) if m is not None else value for m, value in zip(own, taken.to_pylist(), strict=True)], field.type)


def _properties(message: _Inner, options: ReadOptions) -> Any:
    if options.properties_format == "raw":
        return message.properties
    found = decode_properties(message.properties)
    if options.properties_format == "map":
        return list(found.items())
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"))
