"""Which role a directory has in replication, on the disk: config/replica.json. No class of RocketMQ: its brokers leave the file
alone.

    {"brokerAddress":"host:port","haMasterAddress":"host:port","role":"slave","since":ms}

A store that opens as a slave writes it before its first byte, so that nobody opens the directory as a master by mistake: what
is put then would lie at offsets for which the master has other messages. Promotion (upkeep/promoting) writes another role. A
directory without the file is a master's, or a Java broker's. Control plane.
"""
import json
import os
from typing import Any, NamedTuple

from rmq_store.base.io.files import ControlFiles, read_text
from rmq_store.errors import CorruptionError, NotASlave, StoreIsSlave
from rmq_store.events import Event, emit

__all__ = ["NAME", "Mark", "mark_path", "mark_text", "read_mark", "refuse_as_master", "refuse_as_slave", "write_mark"]

NAME = "replica.json"
ROLES = "master", "sync_master", "slave"


class Mark(NamedTuple):
    """What the file says. role: "slave", or what a slave was promoted to. master, broker: the addresses of its master for HA
    and for remoting, "" where nobody named them. since_ms: ms since 1970."""

    role: str
    master: str
    broker: str
    since_ms: int


def mark_path(root: str) -> str:
    """The file's path: str."""
    return os.path.join(root, "config", NAME)


def read_mark(root: str) -> Mark | None:
    """What the file says; None where there is none. Raises CorruptionError, OSError."""
    path = mark_path(root)
    try:
        text = read_text(path)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise _spoilt(path, str(error)) from None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise _spoilt(path, f"no JSON: {text[:100]!r}") from None
    if isinstance(found, dict):
        role, master, broker, since = (found.get(name) for name in ("role", "haMasterAddress", "brokerAddress", "since"))
        if role in ROLES and isinstance(master, str) and isinstance(broker, str) and type(since) is int:
            return Mark(str(role), master, broker, since)
    raise _spoilt(path, f"{text[:200]!r}")


def _spoilt(path: str, found: str) -> CorruptionError:
    error = CorruptionError(path, None, "the fields role, haMasterAddress, brokerAddress and since", found)
    error.cure = ("if you know the role of this directory, move the file away: without it the directory is a master's, and "
                  "`rmqstore follow` makes it a slave's again")
    return error


def mark_text(mark: Mark) -> bytes:
    """The bytes of the file."""
    content: dict[str, Any] = {"brokerAddress": mark.broker, "haMasterAddress": mark.master, "role": mark.role,
                               "since": mark.since_ms}
    return json.dumps(content, separators=(",", ":")).encode()


def write_mark(files: ControlFiles, root: str, mark: Mark) -> None:
    """Makes the file say so; durable when it returns. Whoever dies before leaves the old file. Raises OSError."""
    directory = os.path.dirname(mark_path(root))
    files.make_dirs(directory)
    files.write_new(directory, NAME, mark_text(mark))


def refuse_as_master(root: str, role: str) -> None:
    """Before a store is opened for writing. The log tells of one that was promoted to sync_master and opens as a master. Raises
    StoreIsSlave, CorruptionError."""
    if role == "slave" or (mark := read_mark(root)) is None:
        return
    if mark.role == "slave":
        raise StoreIsSlave(root, mark.master)
    if mark.role == "sync_master" and role == "master":
        emit(Event.ROLE_WEAKER, path=root)


def refuse_as_slave(root: str) -> Mark | None:
    """Before a store follows a master: what its mark says, which is not that it was promoted. An old configuration would end a
    promotion without a word. Raises NotASlave, CorruptionError."""
    mark = read_mark(root)
    if mark is not None and mark.role != "slave":
        raise NotASlave(root, f"it was promoted to {mark.role}", f"open it with role='{mark.role}' (RocketMQ: brokerRole="
                        f"{'SYNC_MASTER' if mark.role == 'sync_master' else 'ASYNC_MASTER'}); if it is to follow a master "
                        f"from now on, move {mark_path(root)} away first")
    return mark
