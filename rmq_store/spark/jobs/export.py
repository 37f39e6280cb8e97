"""Export to Parquet: each task writes its own file with pyarrow; a manifest, written last, says which files count.

    _tmp-<unique>/                          where tasks write; the driver moves out what counts, and removes it
    part-<broker>-<begin>-<end>.parquet     whole and synced when it comes here; made again, it replaces itself
    _manifest.json                          every file with its rows, bytes and crc32c, and how far each log is exported

A later export into the same directory goes on where the manifest stands.
"""
import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import crc32c

from rmq_store.errors import ConfigError, CorruptionError
from rmq_store.io.files import read_text
from rmq_store.spark.arrow import read_pieces
from rmq_store.spark.leftovers import open_file, sync, work_directory
from rmq_store.spark.options import ReadOptions
from rmq_store.spark.positions import LogPositions
from rmq_store.spark.scan import option_texts
from rmq_store.spark.schema import arrow_schema, columns_of
from rmq_store.spark.splits import Piece, pieces_of

__all__ = ["Exported", "export", "verify_export"]

COLUMNS = {"file": "STRING", "rows": "BIGINT", "bytes": "BIGINT", "crc32c": "BIGINT"}
MANIFEST = "_manifest.json"
_CHUNK = 4 << 20


@dataclass(frozen=True)
class Exported:
    """What an export added. positions: {broker: log offset up to which everything is exported}."""

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
    name = f"part-{piece.broker}-{piece.begin:020d}-{piece.end:020d}.parquet"
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
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
    made = [{"file": name, "rows": rows, "bytes": size, "crc32c": crc}] if rows else []
    yield pa.RecordBatch.from_pylist(made, schema=arrow_schema(COLUMNS))


def export(spark: Any, path: Any, directory: str, compression: str = "zstd", **options: Any) -> Exported:
    """Writes the messages of one or many stores as Parquet files under `directory`, and what came since the last export.

    options: those of a read that choose rows and columns; splitSize decides the size of the files. A directory belongs to one
    set of stores. Raises CorruptionError (damage, or a log that lost what was to be exported), ConfigError.
    """
    from rmq_store.spark.jobs.run import run_job

    read = option_texts({"path": path, **options})
    parsed = ReadOptions.parse(read)
    if parsed.view != "messages":
        raise ConfigError(f"option view is {parsed.view!r}: an export has messages; df.write.parquet writes the other views")
    os.makedirs(directory, exist_ok=True)
    manifest = read_manifest(directory)
    begins = {name: int(at) for name, at in manifest["positions"].items()}
    positions, pieces = dict(begins), []
    for broker in parsed.brokers:
        log = LogPositions(broker, parsed)
        end = log.end()
        begin = log.check(begins[broker.name], end) if broker.name in begins else log.first()
        pieces += [list(vars(p).values()) for p in pieces_of(broker, log.files(), begin, end, parsed.split_size, aligned=True)]
        positions[broker.name] = end
    made: list[Any] = []
    if pieces:
        with work_directory(os.path.abspath(directory), "_tmp") as work:
            arguments = {"pieces": pieces, "read": read, "work": work, "compression": compression}
            made = run_job(spark, "export", arguments).collect()
            for row in made:
                os.rename(os.path.join(work, row.file), os.path.join(directory, row.file))
    manifest["files"] += [row.asDict() for row in made]
    manifest["positions"] = positions
    _write_manifest(directory, manifest)
    return Exported(len(made), sum(r.rows for r in made), sum(r.bytes for r in made), positions)


def verify_export(directory: str) -> int:
    """Reads every file of a manifest again and compares; returns their number. Raises CorruptionError."""
    files = read_manifest(directory)["files"]
    for file in files:
        path = os.path.join(directory, file["file"])
        found = _checksum(path)
        if found != (file["bytes"], file["crc32c"]):
            raise CorruptionError(path, None, f"{file['bytes']} bytes with crc32c {file['crc32c']:#010x}",
                                  f"{found[0]} with {found[1]:#010x}")
    return len(files)


def read_manifest(directory: str) -> dict[str, Any]:
    """The manifest of an export; an empty one where there is none. Raises CorruptionError, OSError."""
    path = os.path.join(directory, MANIFEST)
    try:
        manifest = json.loads(read_text(path, open_file))
    except FileNotFoundError:
        return {"version": 1, "files": [], "positions": {}}
    except (ValueError, RecursionError) as error:
        raise CorruptionError(path, None, "a manifest of an export", str(error)) from error
    if not (isinstance(manifest, dict) and isinstance(manifest.get("files"), list)
            and isinstance(manifest.get("positions"), dict)):
        raise CorruptionError(path, None, "a manifest of an export", "JSON of another shape")
    return manifest


def _write_manifest(directory: str, manifest: dict[str, Any]) -> None:
    path = os.path.join(directory, MANIFEST)
    with open(path + ".tmp", "w", encoding="utf-8", opener=open_file) as file:
        json.dump(manifest, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    sync(directory)         # the names of the files before that of the manifest which counts them
    os.rename(path + ".tmp", path)
    sync(directory)


def _checksum(path: str, sync: bool = False) -> tuple[int, int]:
    size = crc = 0
    with open(path, "rb", buffering=0, opener=open_file) as file:
        while data := file.read(_CHUNK):
            crc = crc32c.crc32c(data, crc)
            size += len(data)
        if sync:
            os.fsync(file.fileno())
    return size, crc
