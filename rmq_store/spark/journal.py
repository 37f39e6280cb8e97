"""What a journal of commits says: its place, its fields, and the paths that it may name. staging.py reads and writes it.

Pure functions; any thread. A journal is a file that anybody may have changed, so each field is checked before it is believed.
"""
import hashlib
import os
import re
from typing import Any

__all__ = ["below", "jobs_of", "journal_of", "wrong_in"]

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
