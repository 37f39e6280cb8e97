"""What an export left in its directory: the manifest, and whether the files, and their rows, are those that it says.

Nothing is written.
"""
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import crc32c

from rmq_store.base.io.files import read_text
from rmq_store.errors import CorruptionError, RmqStoreError
from rmq_store.spark.arrow import read_pieces
from rmq_store.spark.identity import is_identity
from rmq_store.spark.leftovers import open_file
from rmq_store.spark.options import ReadOptions, snake
from rmq_store.spark.positions import LogPositions
from rmq_store.spark.scan import option_texts
from rmq_store.spark.schema import columns_of
from rmq_store.spark.splits import pieces_of
from rmq_store.spark.view_columns import REMOVED_COLUMN

__all__ = ["MANIFEST", "VERSION", "checksum", "choosing", "no_strangers", "read_manifest", "verify_export"]

MANIFEST = "_manifest.json"
VERSION = 2             # 1 had no options, and its positions were the logs' ends, whatever end was asked for
_CHUNK = 4 << 20


def choosing(options: ReadOptions) -> dict[str, Any]:
    """The options that choose rows and columns, but for a run's end, as JSON data: equal where they choose the same."""
    def given(rows: Any, usual: str | None = None) -> Any:
        return None if rows is None or rows == usual else sorted(rows, key=str)

    chosen = {
        "columns": columns_of(options), "subscribe": given(options.subscribe), "subscribePattern": options.subscribe_pattern,
        "assign": given(options.assign), "tags": given(options.tags),
        "startingOffsets": given(options.starting_offsets, "earliest"),
        "endingOffsets": given(options.ending_offsets, "latest"), "startingTimestamp": options.starting_timestamp,
        "startingPhysicalOffset": options.starting_physical_offset, "includeTransactional": options.include_transactional,
        "propertiesFormat": options.properties_format, "decompress": options.decompress}
    if options.sql is not None:         # not in the manifests of releases that had no filter
        chosen["sql"] = options.sql
    return dict(json.loads(json.dumps(chosen)))


def read_manifest(directory: str) -> dict[str, Any]:
    """The manifest of an export; an empty one where there is none. Raises CorruptionError, OSError."""
    path = os.path.join(directory, MANIFEST)
    try:
        manifest = json.loads(read_text(path, open_file))
    except FileNotFoundError:
        manifest = {"version": VERSION, "files": [], "positions": {}}
    except (ValueError, RecursionError) as error:
        raise CorruptionError(path, None, "a manifest of an export", str(error)) from error
    if not (isinstance(manifest, dict) and isinstance(manifest.get("files"), list)
            and all(isinstance(manifest.setdefault(name, {}), dict) for name in ("positions", "begins", "options", "logs"))
            and all(map(is_identity, manifest["logs"].values()))
            and all(isinstance(f, dict) and isinstance(f.get("file"), str) and os.path.basename(f["file"]) == f["file"]
                    and all(isinstance(f.get(name), int) for name in ("rows", "bytes", "crc32c")) for f in manifest["files"])
            and all(isinstance(at, int) for name in ("positions", "begins") for at in manifest[name].values())):
        raise CorruptionError(path, None, "a manifest of an export", "JSON of another shape")
    return manifest


def no_strangers(directory: str, manifest: dict[str, Any], kind: type[RmqStoreError] = CorruptionError) -> None:
    """Raises `kind` for a Parquet file that a reader of the directory counts and the manifest does not."""
    counted = {file["file"] for file in manifest["files"]}
    for name in sorted(os.listdir(directory)):
        if name.endswith(".parquet") and not name.startswith(("_", ".")) and name not in counted:
            path, text = os.path.join(directory, name), "a file that the manifest does not list: its rows would count twice"
            if kind is CorruptionError:
                error = CorruptionError(path, None, "only files that the manifest lists", text)
                error.cure = "run the export again, which ends one that was killed; else move the file away"
                raise error
            raise kind(f"{path}: {text}: move it away, or export into another directory")


def verify_export(directory: str, path: Any = None, **options: Any) -> int:
    """Reads every file of a manifest again and holds bytes, rows and places against it; returns the number of files.

    Also that no file is there which a reader of the directory would count besides. path: the store or stores: the rows
    themselves are compared with what the logs have still, and rows that are missing between the files are found. options: how
    to read those (onCorrupt, verify, io), as they were for the export. Raises CorruptionError, OSError.
    """
    manifest = read_manifest(directory)
    for file in manifest["files"]:
        whole = os.path.join(directory, file["file"])
        found = checksum(whole)
        if found != (file["bytes"], file["crc32c"]):
            raise _wrong(whole, None, f"{file['bytes']} bytes with crc32c {file['crc32c']:#010x}",
                                  f"{found[0]} with {found[1]:#010x}")
        if file["file"].endswith(".parquet"):
            _check_rows(whole, file)
    no_strangers(directory, manifest)
    by_broker = _ranges(directory, manifest)
    if path is not None:
        read = ReadOptions.parse(option_texts({"path": path, **options}))
        read = replace(read, **{snake(name): _tuples(value) for name, value in manifest["options"].items()
                                if name != "columns"}, columns=tuple(manifest["options"].get("columns", ())) or None)
        for broker in read.brokers:
            _compare(directory, LogPositions(broker, read), manifest, by_broker.get(broker.name, []))
    return len(manifest["files"])


def _check_rows(path: str, file: dict[str, Any]) -> None:
    """There are as many as the manifest says, each of the file's broker and range, in the order of the log."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as parquet:
        told = [name for name in ("physicalOffset", "brokerName") if name in parquet.schema_arrow.names]
        if parquet.metadata.num_rows != file["rows"]:
            raise _wrong(path, None, f"{file['rows']} rows", f"{parquet.metadata.num_rows}")
        last = -1
        for batch in parquet.iter_batches(columns=told) if "begin" in file and told else ():
            if "brokerName" in told and set(batch.column("brokerName").to_pylist()) - {file["broker"]}:
                raise _wrong(path, None, f"rows of broker {file['broker']}", "others")
            for at in batch.column("physicalOffset").to_pylist() if "physicalOffset" in told else ():
                if not (last < at and file["begin"] <= at < file["end"]):
                    raise _wrong(path, at, f"rows of [{file['begin']}, {file['end']}), each once and in order",
                                          f"one of {at} behind one of {last}")
                last = at


def _ranges(directory: str, manifest: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The files of each broker by place. Raises CorruptionError where two share a place, or one is beyond the position."""
    found: dict[str, list[dict[str, Any]]] = {}
    for file in manifest["files"]:
        if "begin" in file:
            found.setdefault(file["broker"], []).append(file)
    for broker, files in found.items():
        files.sort(key=lambda file: int(file["begin"]))
        end = manifest["positions"].get(broker, 0)
        for one, two in pairwise([*files, {"begin": end}]):
            if one["end"] > two["begin"]:
                raise _wrong(os.path.join(directory, one["file"]), None, f"no row at or behind {two['begin']}, where "
                                      "the next file, or what is exported, begins or ends", f"rows up to {one['end']}")
    return found


def _compare(directory: str, log: LogPositions, manifest: dict[str, Any], files: list[dict[str, Any]]) -> None:
    """Holds the rows of one broker's files, and that there are none between them, against what the log has still."""
    import pyarrow.parquet as pq

    name = log.broker.name
    at = max(manifest["begins"].get(name, 0), log.first())
    for file in [*files, None]:
        upto = manifest["positions"].get(name, 0) if file is None else file["begin"]
        missing = sum(batch.num_rows for batch in _read(log, at, upto))
        if missing:
            raise _wrong(directory, at, f"a file with {missing} rows of {name} from offsets [{at}, {upto})", "none")
        if file is None:
            break
        at = file["end"]
        if file["begin"] < log.first():
            continue
        path = os.path.join(directory, file["file"])
        with pq.ParquetFile(path) as parquet:
            columns = [name for name in columns_of(log.options) if name != REMOVED_COLUMN]      # more may be, since the export
            there = [row for batch in _read(log, file["begin"], at) for row in batch.to_pylist()]
            if parquet.read(columns).to_pylist() != there:
                raise _wrong(path, file["begin"], f"the rows that {log.broker.root} has in [{file['begin']}, {at})",
                                      "others")


def _wrong(path: str, at: int | None, expected: object, found: object) -> CorruptionError:
    """The store may be whole: what is wrong is in the directory of the export."""
    error = CorruptionError(path, at, expected, found)
    error.cure = ("a file of the export was changed or damaged, which says nothing of the store: export into a new directory, "
                  "or put this one back from a copy")
    return error


def _read(log: LogPositions, begin: int, end: int) -> Iterator[Any]:
    """The rows of the records that begin in [begin, end), which may lie inside of one."""
    pieces = pieces_of(log.broker, log.files(), begin, end, log.options.split_size)
    columns = {name: kind for name, kind in columns_of(log.options).items() if name != REMOVED_COLUMN}
    return read_pieces(tuple(pieces), log.options, columns)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def checksum(path: str, sync: bool = False) -> tuple[int, int]:
    """Bytes and crc32c of a file. sync: the device holds it then."""
    size = crc = 0
    with open(path, "rb", buffering=0, opener=open_file) as file:
        while data := file.read(_CHUNK):
            crc = crc32c.crc32c(data, crc)
            size += len(data)
        if sync:
            os.fsync(file.fileno())
    return size, crc
