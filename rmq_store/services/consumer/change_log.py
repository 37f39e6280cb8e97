"""Changes of a table under config/ that its file does not have yet, so that one entry among many is durable without a write of
all: X.changes beside X.json.

    CRC JSON\\n                     CRC: of the JSON, 8 hex digits
    {"base": version}              first: the dataVersion of X.json when the log began
    {"version": version, "entries": {name: entry, or null for one that is gone}}

Crash-safety: whoever loads takes the lines behind that which has the version of X.json. So it does not matter whether a process
died before X.json was replaced, or before the log was. An X.json whose version is in no line is a RocketMQ broker's, which took
the directory over after a kill: entries that it lacks come back, and others stay as it wrote them. A last line that was cut
off was acknowledged to nobody. Who copies or reads beside a writer takes the log before X.json. Thread-safety: the caller's.
"""
import os
import zlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from rmq_store.base.io.files import ControlFiles
from rmq_store.config.upstream_json import dump_json, parse_json
from rmq_store.errors import ConfigFileCorrupted

__all__ = ["SIZE_MAX", "ChangeLog", "Entries", "behind"]

SIZE_MAX = 64 << 20
Version = Mapping[str, Any]
Entries = dict[str, dict[str, Any] | None]


def _line(content: object) -> bytes:
    text = dump_json(content).replace("\n", "").replace("\t", "").encode()      # inside of strings both are escaped
    return b"%08x %s\n" % (zlib.crc32(text), text)


class ChangeLog:
    def __init__(self, files: ControlFiles, table: str) -> None:
        """table: the path of X.json."""
        self._files, self._directory = files, os.path.dirname(table)
        self._name = os.path.basename(table).removesuffix(".json") + ".changes"
        self.path = os.path.join(self._directory, self._name)
        self._there = False
        self._lines: list[bytes] = []       # of this process; none: there is no log, or it is of another one
        self.size = 0

    def load(self) -> list[tuple[Version, Entries]]:
        """Its lines, the base with no entries; none where there is no log. Raises ConfigFileCorrupted, OSError."""
        try:
            fd = self._files.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return []
        self._there = True
        try:
            text = self._files.read(fd, 0, 2 * SIZE_MAX)
        finally:
            self._files.close(fd)
        found: list[tuple[Version, Entries]] = []
        lines = text.split(b"\n")[:-1]
        for number, line in enumerate(lines):
            try:
                if int(line[:8], 16) != zlib.crc32(line[9:]):
                    raise ValueError("its checksum is another one")
                content = parse_json(line[9:].decode())
                found.append((content["version"], dict(content["entries"])) if number else (content["base"], {}))
            except (ValueError, TypeError, KeyError) as error:
                if number == len(lines) - 1:
                    break
                raise ConfigFileCorrupted(self.path, None, f"a change in line {number + 1}", str(error)) from error
        return found

    def begins(self, base: Version) -> None:
        """X.json has this version, and no line is needed any more. Durable. Raises OSError."""
        if self._there:
            with suppress(FileNotFoundError):       # the call before this one failed at the sync
                self._files.unlink(self.path)
            self._files.sync_dir(self._directory)
            self._there = False
        self._lines, self.size = [_line({"base": base})], 0

    def append(self, version: Version, entries: Entries) -> None:
        """Durable when it returns. Behind `begins`. Raises OSError: then the log is not used again before `begins`."""
        line = _line({"version": version, "entries": entries})
        data = line if self.size else self._lines[0] + line
        fd = self._files.open(self.path, os.O_RDWR | (0 if self.size else os.O_CREAT | os.O_TRUNC))
        self._there = True
        try:
            self._files.write(fd, self.size, data)
            self._files.sync(fd)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.path) from error
        finally:
            self._files.close(fd)
        if not self.size:
            self._files.sync_dir(self._directory)
        self._lines.append(line)
        self.size += len(data)

    @property
    def count(self) -> int:
        """Lines with changes."""
        return max(len(self._lines) - 1, 0)

    def shorten(self, count: int, base: Version) -> None:
        """X.json has this version, and with it the first `count` changes. Durable. Raises OSError."""
        left = self._lines[1 + count:]
        if not left:
            self.begins(base)
            return
        self._lines = [_line({"base": base}), *left]
        data = b"".join(self._lines)
        self._files.write_new(self._directory, self._name, data)
        self.size = len(data)


def behind(lines: list[tuple[Version, Entries]], version: object, known: Mapping[str, object]) -> Entries:
    """What `lines` change in a table of this version."""
    at = next((i for i in reversed(range(len(lines))) if lines[i][0] == version), -1)
    found: Entries = {}
    for _, entries in lines[at + 1:]:
        found |= entries
    if at < 0:
        return {name: entry for name, entry in found.items() if entry is not None and name not in known}
    return found
