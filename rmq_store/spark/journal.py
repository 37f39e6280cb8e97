"""What a journal of commits says: its place, its fields, and the paths that it may name. staging.py reads and writes it.

Pure functions; any thread. A journal is a file that anybody may have changed, so each field is checked before it is believed.
"""
import hashlib
import os
import re
from typing import Any

from rmq_store.errors import StoreStateError

__all__ = ["below", "jobs_of", "journal_of", "stored_with", "was_stored", "wrong_in"]

_VERSIONS = 1000        # of an application, stand in its journal
_KINDS: dict[str, Any] = {
    "app": str, "done": int | None, "pending": int | None, "begin": int | None, "skip": int | None, "records": int | None,
    "query": str | None, "log": str | None, "once": bool | None}


def journal_of(root: str, app: str) -> str:
    """The path of the journal of an application."""
    name = hashlib.sha256(app.encode()).hexdigest()[:32]
    return os.path.join(root, ".spark", "journal", f"{name}.json")


def wrong_in(entry: Any) -> str | None:
    """What no commit has written. What it names is renamed, or removed with all that is in it: it must be below .spark/."""
    if not isinstance(entry, dict):
        return f"{type(entry).__name__} instead of an object"
    job, parts, shards = entry.get("job"), entry.get("parts", []), entry.get("shards", {})
    if job is not None and not (isinstance(job, str) and re.fullmatch(r"[\w-]{1,255}", job) and job != "journal"):
        return f"job {job!r}, which is no name of a directory below .spark/"
    for name, kinds in _KINDS.items():
        if not isinstance(entry.get(name), kinds):
            return f"{name} {entry.get(name)!r}"
    stored = entry.get("stored")
    if stored is not None and not (isinstance(stored, list) and all(type(version) is int for version in stored)):
        return f"stored {stored!r}"
    fields = {"path": str, "size": int, "records": int, "crc": int}
    for part in parts if isinstance(parts, list) else (parts,):
        if not isinstance(part, dict) or part.keys() != fields.keys() or not all(
                isinstance(part[name], kind) for name, kind in fields.items()) or below(part["path"]) is None:
            return f"part {part!r}"
    for made, name in shards.items() if isinstance(shards, dict) else ((shards, ""),):
        if not isinstance(made, str) or below(made) is None or not re.fullmatch(r"shard-[0-9]{5,}", str(name)):
            return f"shard {made!r}: {name!r}"
    return None


def below(path: str) -> str | None:
    """<job>/<name> of what lies in the directory of a job, wherever its root was when the path was noted; else None."""
    inner = f"/{path}".rpartition("/.spark/")[2]
    return inner if re.fullmatch(r"(?!journal/)[\w-]{1,255}/[\w-][\w.-]{0,254}", inner) else None


def jobs_of(entry: dict[str, Any]) -> set[str]:
    """The jobs in whose directories lies what a journal speaks of."""
    paths = [part["path"] for part in entry.get("parts") or ()] + list(entry.get("shards") or ())
    return {os.path.basename(os.path.dirname(path)) for path in paths} | ({entry["job"]} if entry.get("job") else set())


def was_stored(root: str, app: str, version: int, entry: dict[str, Any], rows: int | None) -> bool:
    """Of a batch write. Raises StoreStateError for a version below the last one that was never stored, as a backfill has it: to
    take it for a repeat would lose its rows. rows: how many it has; None: that is not known."""
    done = entry.get("done")
    if done is None or version >= done or version in (entry.get("stored") or ()) or rows == 0:
        return done is not None and version <= done
    count = "" if rows is None else f"its {rows} rows would be lost: "
    raise StoreStateError(f"{root} has version {done} of txnAppId {app!r}, and does not know version {version}, which is "
                          f"lower, as one that was stored: {count}versions of an application must grow: write these rows with "
                          "a higher txnVersion, or under a txnAppId of their own")


def stored_with(entry: dict[str, Any]) -> list[int]:
    """The versions of an application that are stored when `entry`, a decided commit, is done: the newest ones."""
    return [*(entry.get("stored") or ()), entry["pending"]][-_VERSIONS:]
