"""One file under <root>/config as RocketMQ's ConfigManager keeps it: X, and X.bak with what stood in X before.

Reading takes X, or where it is missing, empty or damaged X.bak, and says so. Writing is safe at any moment: the .bak and then X
are each written beside their name, synced and renamed, so that one of the two is always whole. Thread-safety: the caller's.
"""
import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

from rmq_store.base.io.files import ControlFiles
from rmq_store.config.upstream_json import dump_json, parse_json
from rmq_store.errors import ConfigFileCorrupted, DiskFull
from rmq_store.events import Event, emit

__all__ = ["BROKER_CHANGES", "ConfigFile", "Rows", "named_if_full", "taken_changes"]

SIZE_MAX = 256 << 20
BROKER_CHANGES = "brokerChanges.json"       # broker/kept.py
Rows = dict[str, dict[str, str]]


@contextlib.contextmanager
def named_if_full(path: str) -> Iterator[None]:
    """A full disk becomes DiskFull, which says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in DiskFull.codes:
            raise
        full = DiskFull(error.errno or 0, "writing", path)
        full.cure = "make room on that file system and make the call again"
        raise full from error


class ConfigFile:
    """`name` under <root>/config. A store that is read-only passes files=None to no call of `save`."""

    def __init__(self, files: ControlFiles, root: str, name: str) -> None:
        self._files = self.files = files
        self.directory = os.path.join(root, "config")
        self.name = name
        self.path = os.path.join(self.directory, name)
        self._text: bytes | None = None         # what X holds, as far as it is known to be good
        self.from_backup = False                # whether what was loaded is X.bak's, so older than what X was

    def load(self, take: Callable[[Any], Any]) -> Any:
        """What `take` makes of the content; None where there is neither X nor X.bak.

        `take` raises ValueError, TypeError or KeyError for content that is not of this file's shape. Raises ConfigFileCorrupted
        where X or X.bak is there and neither can be read.
        """
        problems = []
        for path in (self.path, self.path + ".bak"):
            try:
                text = self._read(path)
                content = parse_json(text.decode())
                dump_json(content).encode()         # what could not be written again must not be met when the store closes
                found = take(content)
            except FileNotFoundError:
                continue
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                problems.append((path, str(error) or type(error).__name__))
                continue
            if path == self.path:
                self._text = text
            elif problems or os.path.exists(self.path + ".bak"):
                self.from_backup = True
                emit(Event.CONFIG_BACKUP_USED, file=path, reason=problems[0][1] if problems else f"{self.name} is missing")
            return found
        if problems:
            path, reason = problems[0]
            raise ConfigFileCorrupted(path, None, f"the content of a {self.name}, there or in {self.name}.bak", reason)
        return None

    def save(self, content: object) -> None:
        """Makes X hold `content`, and X.bak what X held. Durable when it returns. Raises DiskFull, OSError."""
        text = dump_json(content).encode()
        if text == self._text:
            return
        with named_if_full(self.path):
            self._write(text)

    def _write(self, text: bytes) -> None:
        if self._files.mkdir(self.directory):
            self._files.sync_dir(os.path.dirname(self.directory))
        if self._text is not None:
            self._files.write_new(self.directory, self.name + ".bak", self._text)
        self._files.write_new(self.directory, self.name, text)
        self._text = text

    def _read(self, path: str) -> bytes:
        fd = self._files.open(path, os.O_RDONLY)
        try:
            text = self._files.read(fd, 0, SIZE_MAX + 1)
        finally:
            self._files.close(fd)
        if len(text) > SIZE_MAX:
            raise ValueError(f"longer than {SIZE_MAX} bytes")
        if not text.strip():
            raise ValueError("it is empty")
        return text


def taken_changes(content: Any) -> Rows:
    """The rows of BROKER_CHANGES, for `load`. Raises ValueError, TypeError, KeyError."""
    if not isinstance(content["changed"], dict):
        raise ValueError(f"its changes are {content['changed']!r:.200}")
    rows: Rows = {}
    for name, row in content["changed"].items():
        rows[name] = {key: row[key] for key in ("name", "value", "before")}
        if not all(isinstance(text, str) for text in rows[name].values()):
            raise ValueError(f"the change of {name} is {row!r:.200}")
    return rows
