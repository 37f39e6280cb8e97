"""The files under config/ on their way into a copy that keeps queue offsets: consumer offsets, delay offsets, topics, groups.

They are read before the log is, so none speaks of a message that is not copied, and written when all messages are. What others
have changed in the target since is left alone. Control plane; one thread.
"""
import os
import zlib
from collections.abc import Callable
from typing import Any

from rmq_store.base.io.files import ControlFiles
from rmq_store.codec.delay import SCHEDULE_TOPIC
from rmq_store.config.recorded import NAME as RECORDED  # the target has its own
from rmq_store.config.upstream_json import dump_json, int_keys, parse_json
from rmq_store.errors import ConfigFileCorrupted
from rmq_store.services.cleaning.removing import FILE as REMOVED
from rmq_store.services.dispatchers.dispatcher import NAME as DISPATCHERS  # places in a log that the copy has not

__all__ = ["Settings"]

SIZE_MAX = 256 << 20
# Where there is a choice of topics: what of these is of them, and nothing of others.
TABLES = {"consumerOffset.json": "offsetTable", "topics.json": "topicConfigTable"}


class Settings:
    """topics: None takes all files; names take what concerns them."""

    def __init__(self, files: ControlFiles, root: str, topics: list[str] | None) -> None:
        self._files = files
        self._found: dict[str, bytes] = {}
        directory = os.path.join(root, "config")
        for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else ():
            path = os.path.join(directory, name)
            if name in (REMOVED, DISPATCHERS, RECORDED) or name.endswith(".tmp") or not os.path.isfile(path):
                continue
            data = self._read(path)
            chosen = data if topics is None else _of(topics, name, path, data)
            if chosen is not None:
                self._found[name] = chosen

    def _read(self, path: str) -> bytes:
        fd = self._files.open(path, os.O_RDONLY)
        try:
            return self._files.read(fd, 0, SIZE_MAX)
        finally:
            self._files.close(fd)

    def begin(self, root: str) -> None:
        """Before the target is opened for the first time: which of its topics have batch queues. What else topics.json says
        harms nobody; `apply` finds it as it is."""
        data, directory = self._found.get("topics.json"), os.path.join(root, "config")
        if data is not None and b"BatchCQ" in data and not os.path.exists(os.path.join(directory, "topics.json")):
            self._files.make_dirs(directory)
            self._files.write_new(directory, "topics.json", data)

    def apply(self, root: str, entry: dict[str, Any], save: Callable[[], None]) -> tuple[list[str], list[str]]:
        """Writes them into the store at `root`: (written, left alone). entry["settings"]: checksums of what the last call
        wrote, and of what one that was broken off may have written. save: has the device hold the entry."""
        before: dict[str, list[int]] = entry.get("settings", {})
        entry["settings"] = before | {name: [*before.get(name, []), zlib.crc32(data)] for name, data in self._found.items()}
        save()
        directory = os.path.join(root, "config")
        if self._found and self._files.mkdir(directory):
            self._files.sync_dir(root)
        written, kept = [], []
        for name, data in self._found.items():
            path = os.path.join(directory, name)
            there = self._read(path) if os.path.exists(path) else None
            if there is not None and there != data and zlib.crc32(there) not in before.get(name, []):
                kept.append(name)
                entry["settings"][name] = before.get(name, [])
                continue
            if there != data:
                self._files.write_new(directory, name, data)
                written.append(name)
            entry["settings"][name] = [zlib.crc32(data)]
        return written, kept


def _of(topics: list[str], name: str, path: str, data: bytes) -> bytes | None:
    if name == "delayOffset.json":
        return data if SCHEDULE_TOPIC in topics else None
    if name == "subscriptionGroup.json":
        return data
    if name not in TABLES:
        return None
    try:
        content = parse_json(data.decode())
        content[TABLES[name]] = {key: int_keys(value) if name == "consumerOffset.json" else value
                                 for key, value in content[TABLES[name]].items() if key.partition("@")[0] in topics}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigFileCorrupted(path, None, f"the content of a {name}", str(error)) from error
    return dump_json(content).encode()
