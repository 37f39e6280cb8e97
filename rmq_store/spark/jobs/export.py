"""Export to Parquet: each task writes its own file with pyarrow; a manifest, written last, says which files count.

    _tmp-<unique>/                          where tasks write, and the driver the manifest to come; removed when it fails
    _ready/                                 the same, renamed when it is whole: what is in it will count, whoever moves it out
    part-<broker>-<begin>-<end>.parquet     rows of the records that begin in these log offsets
    _manifest.json                          the options, every file with its rows, bytes and crc32c, and how far each log is
                                            exported: what the options choose before that place is in the files; logs: of which
                                            log each place is (identity.py)

A later export into the same directory continues where the manifest stands, after it has moved out what a killed one left ready.
Only this moment changes what a reader of the directory sees, and whatever happens in it, no row is there twice.
"""
import json
import logging
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from rmq_store.errors import ConfigError, StoreStateError
from rmq_store.spark.arrow import read_pieces
from rmq_store.spark.asked import warn_of_unknown_topics
from rmq_store.spark.jobs.exported import MANIFEST, VERSION, choosing, no_strangers, read_manifest, verify_export
from rmq_store.spark.jobs.exported import checksum as _checksum
from rmq_store.spark.leftovers import drop, missing_here, open_file, sync, work_directory
from rmq_store.spark.options import ReadOptions
from rmq_store.spark.positions import LogPositions, begin_of_new
from rmq_store.spark.scan import option_texts
from rmq_store.spark.schema import arrow_schema, columns_of
from rmq_store.spark.splits import Piece, in_time, pieces_of, with_end
from rmq_store.spark.stores import within

__all__ = ["Exported", "export", "verify_export"]

log_of = logging.getLogger("rmq_store.spark")

COLUMNS = {"file": "STRING", "broker": "STRING", "begin": "BIGINT", "end": "BIGINT", "rows": "BIGINT", "bytes": "BIGINT",
           "crc32c": "BIGINT"}
READY = "_ready"
_CODECS = ("zstd", "snappy", "gzip", "lz4", "brotli")


@dataclass(frozen=True)
class Exported:
    """What an export added. positions: {broker: log offset up to which all that the options choose is exported}."""

    files: int
    rows: int
    bytes: int
    positions: dict[str, int]


def plan(arguments: dict[str, Any]) -> list[Any]:
    return list(arguments["pieces"])


def work(part: Any, arguments: dict[str, Any]) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    options = ReadOptions.parse(arguments["read"])
    columns = columns_of(options)
    piece = Piece(*part)
    name = f"part-{quote(piece.broker, safe='')}-{piece.begin:020d}-{piece.end:020d}.parquet"
    path = os.path.join(arguments["work"], name)
    temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    rows = 0
    try:
        writer = None
        for batch in read_pieces((piece,), options, columns):
            if writer is None:
                writer = pq.ParquetWriter(temporary, arrow_schema(columns), compression=arguments["compression"],
                                          use_dictionary=[c for c, kind in columns.items() if kind == "STRING"])
            writer.write_batch(batch, row_group_size=1 << 17)
            rows += batch.num_rows
        if writer is not None:
            writer.close()
            size, crc = _checksum(temporary, sync=True)
            os.rename(temporary, path)
    except FileNotFoundError as error:
        raise error if "every node" in str(error) else missing_here(error) from None
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
    made = [{"file": name, "broker": piece.broker, "begin": piece.begin, "end": piece.end, "rows": rows, "bytes": size,
             "crc32c": crc}] if rows else []
    yield pa.RecordBatch.from_pylist(made, schema=arrow_schema(COLUMNS))


def export(spark: Any, path: Any, directory: str, compression: str = "zstd", **options: Any) -> Exported:
    """Writes the messages of one or many stores as Parquet files under `directory`, and what came since the last export.

    options: those of a read. What chooses rows and columns must be the same each time, but for endingTimestamp and
    endingPhysicalOffset, which say how far this run goes; splitSize decides the size of the files. A directory belongs to one
    set of stores; newBrokers says where one begins that is new. One export at a time. Raises CorruptionError (damage, or a log
    that lost what was to be exported), ConfigError, StoreStateError (another export was at the directory meanwhile).
    """
    import pyarrow as pa

    from rmq_store.spark.jobs.run import collect

    read = option_texts({"path": path, **options})
    parsed = ReadOptions.parse(read)
    if parsed.view != "messages":
        raise ConfigError(f"option view is {parsed.view!r}: an export has messages; df.write.parquet writes the other views")
    for broker in parsed.brokers:
        if within(broker, directory):
            raise ConfigError(f"the directory {directory} is, or lies in, the store that is exported ({broker.root}): "
                              "name another one")
    codec = str(compression).lower()
    if codec != "none" and (codec not in _CODECS or not pa.Codec.is_available(codec)):
        raise ConfigError(f"compression is {compression!r}: it is one of none, {', '.join(_CODECS)}")
    warn_of_unknown_topics(parsed)
    os.makedirs(directory, exist_ok=True)
    _finish(directory)
    before = read_manifest(directory)
    no_strangers(directory, before, ConfigError)
    _same_options(directory, before, choosing(parsed))
    manifest = {**before, "version": VERSION, "options": choosing(parsed)}
    pieces = _plan(parsed, manifest)
    if not pieces and manifest == before:
        return Exported(0, 0, 0, manifest["positions"])
    with work_directory(os.path.abspath(directory), "_tmp") as work:
        made = []
        if pieces:
            made = collect(spark, "export", {"pieces": pieces, "read": read, "work": work, "compression": compression})
        manifest["files"] = [*before["files"], *(row.asDict() for row in made)]
        _write_manifest(work, manifest)
        if read_manifest(directory) != before:
            raise StoreStateError(f"{directory}: another export wrote here meanwhile, this one added nothing: run it again")
        os.rename(work, os.path.join(directory, READY))
        sync(directory)
    _finish(directory)
    return Exported(len(made), sum(r.rows for r in made), sum(r.bytes for r in made), manifest["positions"])


def _plan(options: ReadOptions, manifest: dict[str, Any]) -> list[list[Any]]:
    """The pieces of the logs that are to be exported; has the manifest say where they begin and end."""
    known = {name: int(at) for name, at in manifest["positions"].items()}
    logs = [LogPositions(broker, options) for broker in options.brokers]
    new = begin_of_new(logs, known)
    manifest["positions"], manifest["begins"], manifest["logs"] = dict(known), dict(manifest["begins"]), dict(manifest["logs"])
    pieces = []
    for log in logs:
        name, end = log.broker.name, log.end()
        log.check_whole()
        if name in known:
            begin = log.check(known[name], end, "the next record to export", "export into a new directory",
                              manifest["logs"].get(name))
        else:
            begin = new[name]
            if options.starting_physical_offset is not None:
                begin = max(begin, min(end, log.of_place(options.starting_physical_offset)))
            manifest["begins"][name] = begin
        if options.ending_physical_offset is not None:
            end = min(end, log.of_place(options.ending_physical_offset))
        if options.ending_timestamp is not None:
            end = min(end, log.not_before(options.ending_timestamp, begin, end))
        manifest["positions"][name] = end = max(begin, end)
        if name not in manifest["logs"] or known.get(name) != end:
            if name in known and name not in manifest["logs"]:
                log_of.warning("%s (broker %s): an export of an earlier release did not note which log it read: the one that "
                               "is there now is taken for it", log.broker.root, name)
            manifest["logs"][name] = log.identity(end)
        last = manifest["logs"][name]["last"]
        found = pieces_of(log.broker, in_time(log.files(), options), begin, end, options.split_size, aligned=True)
        at_end = bool(found) and found[-1].end == end
        pieces += [list(vars(p).values()) for p in with_end(found, tuple(last) if last is not None and at_end else None)]
    return pieces


def _same_options(directory: str, manifest: dict[str, Any], options: dict[str, Any]) -> None:
    """Raises ConfigError where the directory has rows that other options chose."""
    if not manifest["positions"]:
        return
    if manifest["version"] != VERSION:
        raise ConfigError(f"{directory} has an export of an earlier release, which did not note its options: export into a "
                          "new directory")
    for name, value in options.items():
        if manifest["options"].get(name) != value:
            raise ConfigError(f"{directory} has an export with {name}={json.dumps(manifest['options'].get(name))}, this one "
                              f"has {json.dumps(value)}: give the same options, or export into another directory")


def _finish(directory: str) -> None:
    """Moves out what is ready, the manifest last; also what an export left that was killed in here."""
    ready = os.path.join(directory, READY)
    if not os.path.isdir(ready):
        return
    if os.path.exists(os.path.join(ready, MANIFEST)):
        for file in read_manifest(ready)["files"]:
            made = os.path.join(ready, file["file"])
            if os.path.exists(made):
                os.rename(made, os.path.join(directory, file["file"]))
        sync(directory)         # the names of the files before that of the manifest which counts them
        os.rename(os.path.join(ready, MANIFEST), os.path.join(directory, MANIFEST))
        sync(directory)
    gone = os.path.join(directory, f"_tmp-{uuid.uuid4().hex}")      # which the next export sweeps, if this one dies here
    os.rename(ready, gone)
    drop(gone)


def _write_manifest(directory: str, manifest: dict[str, Any]) -> None:
    path = os.path.join(directory, MANIFEST)
    with open(path + ".tmp", "w", encoding="utf-8", opener=open_file) as file:
        json.dump(manifest, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".tmp", path)
    sync(directory)
