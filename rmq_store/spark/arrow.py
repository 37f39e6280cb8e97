"""Kernel buffers as Arrow record batches, without copying, and the rows of a piece of the log. Runs in the workers."""
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

from rmq_store.access.bulk._columns import Region, Split
from rmq_store.base.io._io import IoTable
from rmq_store.base.io.files import ControlFiles
from rmq_store.codec._layout import BLANK_SIZE
from rmq_store.errors import CorruptionError, StoreStateError
from rmq_store.services.backup.met import Met, met_at
from rmq_store.services.cleaning.removing import Bounds, removed_queues
from rmq_store.spark.options import ReadOptions
from rmq_store.spark.schema import arrow_schema, kernel_columns
from rmq_store.spark.splits import Piece
from rmq_store.spark.stores import is_gone, store_root, whole_before
from rmq_store.spark.unwrapping import inflating
from rmq_store.spark.view_columns import ERROR_COLUMN, REMOVED_COLUMN

__all__ = ["behind", "check_met", "open_if_there", "open_piece", "read_pieces", "refuse_another_file"]

log = logging.getLogger("rmq_store.spark")


def open_piece(piece: Piece, options: ReadOptions, verify: str | None = None) -> Split:
    """The kernel's Split of a piece, with the rows that the options choose. Raises OSError, and StoreStateError where the file
    is not the one that the planner saw."""
    refuse_another_file(piece)
    split = Split(piece.path, piece.start, piece.begin, piece.end, newest=piece.newest, aligned=piece.aligned,
                  verify=verify or options.verify, max_record=options.max_record_size, mapped=options.io != "pread",
                  whole_before=_whole_before(piece, options))
    split.choose(selectors=options.selectors(piece.broker),
                 tags=None if options.tags is None else [t.encode() for t in options.tags], sql=options.sql,
                 time_low=options.starting_timestamp, time_high=options.ending_timestamp,
                 transactional=options.include_transactional)
    return split


def _whole_before(piece: Piece, options: ReadOptions) -> int:
    root = next((b.root for b in options.brokers if b.name == piece.broker), None)
    return 0 if root is None or not piece.newest else whole_before(root)


def open_if_there(piece: Piece, options: ReadOptions, verify: str | None = None) -> Split | None:
    """open_piece; None where the file was cleaned since the read was planned. Raises OSError."""
    try:
        return open_piece(piece, options, verify)
    except FileNotFoundError:
        if is_gone(piece.path, piece.start, empty=piece.head is None):
            return None
    try:
        return open_piece(piece, options, verify)           # one that was made again meanwhile is there now
    except FileNotFoundError:
        raise _not_here(piece.path) from None


def _not_here(path: str) -> FileNotFoundError:
    return FileNotFoundError(2, "no such file, which the planner saw, and cleaning did not delete it: on a cluster the store "
                             "has to be at this path on every node, and no copy of it may be behind", path)


def check_met(path: str, broker: str, start: int, known: Met, cut: bool = False) -> None:
    """That a file of a log has the record that the planner met. A file that was cleaned since is fine; cut: also a record that
    is not there. Raises StoreStateError, FileNotFoundError."""
    try:
        found = met_at(path, start, known[0])
    except FileNotFoundError:
        if is_gone(path, start, empty=False):
            return
        raise _not_here(path) from None
    if found != tuple(known) and not (cut and found is None):
        raise StoreStateError(
            f"{path} (broker {broker}) does not have the record at log offset {known[0]} that the planner met there: another "
            "store is at this path on this machine, or it was replaced since the read was planned. The same store has to be at "
            "this path on every node; then read it again")


def refuse_another_file(piece: Piece) -> None:
    """A worker that sees another store at the path, or one that was replaced since the plan, must not read it. Raises
    StoreStateError, FileNotFoundError."""
    if piece.head is not None:
        check_met(piece.path, piece.broker, piece.start, piece.head)
    if piece.last is not None and piece.last[0] >= piece.start:     # not there: cut, or a copy that is behind; its end tells
        check_met(piece.path, piece.broker, piece.start, piece.last, cut=True)


def _open(piece: Piece, options: ReadOptions) -> Split | None:
    """Of a read of messages, which must not leave some out unsaid. None: the file was cleaned, and failOnDataLoss is false."""
    split = open_if_there(piece, options)
    if split is None:
        _lost(piece, options, piece.begin, "the file was deleted by cleaning since this read was planned")
    return split


def behind(piece: Piece, position: int) -> CorruptionError | None:
    """The error for a log that ends at `position` here, before the end that the planner saw; None where it goes so far."""
    if not piece.full or position + BLANK_SIZE > piece.end:
        return None
    error = CorruptionError(piece.path, position, f"the records up to {piece.end}, as when this was planned",
                            f"the log ends at {position} on this machine: it was cut since, or this is a copy that is behind")
    error.cure = "have the whole store at this path on every node, and run it again"
    return error


def _lost(piece: Piece, options: ReadOptions, begin: int, why: str) -> None:
    if options.fail_on_data_loss:
        error = CorruptionError(piece.path, begin, f"the records up to {piece.end}, as when this read was planned", why)
        error.cure = "read again, or with failOnDataLoss=false to leave out what is lost"
        raise error
    log.warning("%s: %d bytes of the log, from offset %d on, are left out (failOnDataLoss=false): %s", piece.path,
                piece.end - begin, begin, why)


def read_pieces(pieces: tuple[Piece, ...], options: ReadOptions, columns: dict[str, str]) -> Iterator[Any]:
    """Record batches of these columns of view messages. Raises CorruptionError with path and offset (onCorrupt=fail, or
    failOnDataLoss), StoreStateError (another store), OSError."""
    schema = arrow_schema(columns)
    wanted = kernel_columns(columns, options)
    removed: dict[str, Bounds] = {}
    if REMOVED_COLUMN in columns:
        removed = {b.name: removed_queues(ControlFiles(IoTable()), store_root(b)) for b in options.brokers}
    for piece in pieces:
        split = _open(piece, options)
        if split is None:
            continue
        try:
            while (found := split.batch(wanted, max_rows=options.batch_rows, max_bytes=options.batch_bytes)) is not None:
                count, buffers = found
                if count:
                    made = _batches(schema, piece, options, count, buffers, removed.get(piece.broker, {}))
                    yield from (batch for batch in made if batch.num_rows)
                for region in split.take_bad():
                    if options.on_corrupt == "fail":
                        raise corruption(piece, region)
                    if options.on_corrupt == "emit":
                        yield _error_row(schema, piece, region)
            if (short := behind(piece, split.position)) is not None:
                _lost(piece, options, split.position, str(short.found))
        finally:
            split.close()


def corruption(piece: Piece, region: Region) -> CorruptionError:
    """The error for a bad region."""
    error = CorruptionError(piece.path, region.begin, "a whole record", f"{region.kind}, good records follow at {region.end}")
    error.cure = "look at it with `rmqstore dump`, or read with onCorrupt=skip or emit"
    return error


def _batches(schema: Any, piece: Piece, options: ReadOptions, count: int, buffers: dict[str, Any],
             removed: Bounds) -> Iterator[Any]:
    import pyarrow as pa

    arrays = []
    for field in schema:
        if field.name == "brokerName":
            array = pa.repeat(pa.scalar(piece.broker), count)
        elif field.name == "commitLogFile":
            array = pa.repeat(pa.scalar(piece.path), count)
        elif field.name == ERROR_COLUMN:
            array = pa.nulls(count, field.type)
        elif field.name == REMOVED_COLUMN:
            array = _removed(count, buffers, removed)
        elif field.name == "properties":
            array = _properties(options, count, buffers)
        elif pa.types.is_string(field.type) or pa.types.is_binary(field.type):
            array = _text(field.type, count, buffers[field.name])
        else:
            array = pa.Array.from_buffers(field.type, count, [None, pa.py_buffer(buffers[field.name])])
        arrays.append(array)
    topics, fits = [], {}
    if options.subscribe_pattern is not None:
        topics = _text(pa.string(), count, buffers["topic"]).to_pylist()
        fits = {t: re.fullmatch(options.subscribe_pattern, t) is not None for t in set(topics)}
    for batch, rows in inflating(pa.RecordBatch.from_arrays(arrays, schema=schema), piece, options, buffers):
        yield batch if all(fits.values()) else batch.filter(pa.array([fits[topics[i]] for i in rows], pa.bool_()))


def _text(kind: Any, count: int, buffers: Any) -> Any:
    import pyarrow as pa

    validity = None if buffers.validity is None else pa.py_buffer(buffers.validity)
    return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(buffers.offsets), pa.py_buffer(buffers.data)])


def _removed(count: int, buffers: dict[str, Any], bounds: Bounds) -> Any:
    """For each row whether it lies below the place where its queue was removed."""
    import pyarrow as pa

    ids, places = memoryview(buffers["queueId"]).cast("i"), memoryview(buffers["physicalOffset"]).cast("q")
    if not bounds or places[0] >= max(bounds.values()):
        return pa.repeat(pa.scalar(False), count)
    topics = _text(pa.string(), count, buffers["topic"]).to_pylist()
    return pa.array([places[i] < bounds.get((topics[i], ids[i]), 0) for i in range(count)], pa.bool_())


def _properties(options: ReadOptions, count: int, buffers: dict[str, Any]) -> Any:
    import pyarrow as pa

    if options.properties_format == "raw":
        return _text(pa.binary(), count, buffers["propertiesRaw"])
    found = buffers["properties"]
    names = _text(pa.string(), found.entries, found.names)
    values = _text(pa.string(), found.entries, found.values)
    kind = pa.map_(pa.string(), pa.string())
    entries = pa.StructArray.from_arrays([names, values], fields=[kind.key_field, kind.item_field])
    array = pa.Array.from_buffers(kind, count, [None, pa.py_buffer(found.offsets)], children=[entries])
    if options.properties_format == "map":
        return array
    texts = [json.dumps(dict(row), ensure_ascii=False, separators=(",", ":")) for row in array.to_pylist()]
    return pa.array(texts, pa.string())


def _error_row(schema: Any, piece: Piece, region: Region) -> Any:
    import pyarrow as pa

    known = {"brokerName": piece.broker, "commitLogFile": piece.path, "physicalOffset": region.begin,
             "storeSize": min(region.end - region.begin, 0x7FFFFFFF), ERROR_COLUMN: region.kind}
    return pa.RecordBatch.from_arrays([pa.array([known.get(f.name)], f.type) for f in schema], schema=schema)
