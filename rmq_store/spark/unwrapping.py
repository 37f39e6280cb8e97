"""One row for each message of an inner batch, as a consumer gets them: a record of a batch queue holds several. Runs in the
workers.

The kernel makes one row of a record. A record batch without inner batches stays as it is; else the rows of inner batches are
taken as often as they have messages, and the columns that differ are made anew. A batch that cannot be decoded stays one row.
"""
import json
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rmq_store.base.io.files import open_regular
from rmq_store.codec._codec import DecodedRecord, body_crc32, decode_record
from rmq_store.codec._layout import FLAG_COMPRESSED, FLAG_COMPRESSION_TYPE, FLAG_INNER_BATCH, FLAG_NEED_UNWRAP
from rmq_store.codec.batch import decode_batch
from rmq_store.codec.compression import inflate
from rmq_store.codec.properties import decode_properties
from rmq_store.errors import RmqStoreError
from rmq_store.spark.options import ReadOptions
from rmq_store.spark.splits import Piece

__all__ = ["NEEDED", "unwrapped"]

NEEDED = ("sysFlag", "physicalOffset", "storeSize")     # columns of the kernel that tell of inner batches
_OF_RECORD = FLAG_INNER_BATCH | FLAG_NEED_UNWRAP | FLAG_COMPRESSED | FLAG_COMPRESSION_TYPE
_BODY_MAX = 64 << 20


class _Inner(NamedTuple):
    queue_offset: int
    flag: int
    body: bytes
    properties: bytes


def unwrapped(batch: Any, piece: Piece, options: ReadOptions, buffers: dict[str, Any]) -> tuple[Any, Sequence[int]]:
    """`batch`, a record batch of all rows that `buffers` has, with the messages of its inner batches; and which row of
    `buffers` each of its rows is of. Raises OSError."""
    flags = memoryview(buffers["sysFlag"]).cast("i")
    found = {i: messages for i, flag in enumerate(flags)
             if flag & FLAG_INNER_BATCH and (messages := _messages(piece, buffers, i))}
    if not found:
        return batch, range(len(flags))
    import pyarrow as pa

    rows: list[int] = []
    own: list[_Inner | None] = []
    for i in range(len(flags)):
        of_it = found.get(i, [None])
        rows += [i] * len(of_it)
        own += of_it
    taken = batch.take(pa.array(rows, pa.int64()))
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
