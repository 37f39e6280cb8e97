r"""Messages as JSON lines, out of a store and into one. A line is what `rmqstore get --json` prints of a message.

    {"topic":"orders","queue_id":0,"queue_offset":7,…,"properties":{"TAGS":"paid"},"body":"12 EUR","body_as":"utf8"}

A body that is no UTF-8 is in hex. Properties that the dict does not give back to the byte are there once more, in hex. To put a
line in, "topic" and "body" are enough. Control plane; one thread.
"""
import io
import json
import os
import re
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

from rmq_store.base.io._io import IoTable
from rmq_store.base.io.files import ControlFiles
from rmq_store.codec._codec import decode_record, encode_record
from rmq_store.codec._layout import (
    FLAG_BORN_V6,
    FLAG_COMPRESSED,
    FLAG_INNER_BATCH,
    FLAG_STORE_V6,
    FLAG_TRANSACTION,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from rmq_store.codec.batch import decode_batch
from rmq_store.codec.compression import inflate
from rmq_store.codec.delay import SCHEDULE_TOPIC
from rmq_store.codec.properties import decode_properties, encode_properties
from rmq_store.codec.timer import span_ms
from rmq_store.errors import ConfigError, MessageIllegal, RmqStoreError, StoreStateError
from rmq_store.log.recovery.holes import LostRow
from rmq_store.log.recovery.lockfile import in_use
from rmq_store.log.recovery.places import root_of
from rmq_store.services.backup.source import Source
from rmq_store.services.cleaning.removing import removed_queues
from rmq_store.services.delay.service import delay_offsets
from rmq_store.services.transaction.half import number_of
from rmq_store.store import MessageStore
from rmq_store.upkeep.moving.journal import Appender, Journal, use_unless_given
from rmq_store.upkeep.moving.rules import Rules, refuse_light, topic_names

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["LineResult", "export_lines", "import_lines", "message_fields"]

DELAYED = SCHEDULE_TOPIC.encode()
PIECE, LINE_MAX, INFLATED_MAX = 8 << 20, 1 << 30, 64 << 20
DISPATCH_TIMEOUT_S = 600
NUMBERS = {"queue_id": (0, (1 << 31) - 1), "flag": (-(1 << 31), (1 << 31) - 1), "sys_flag": (-(1 << 31), (1 << 31) - 1),
           "born_timestamp": (-(1 << 63), (1 << 63) - 1), "reconsume_times": (-(1 << 31), (1 << 31) - 1)}
V6 = FLAG_BORN_V6 | FLAG_STORE_V6       # bits of sys_flag that the hosts decide


@dataclass(frozen=True)
class LineResult:
    """The result of an export or an import."""

    messages: int                   # now
    before: int                     # lines that an earlier call had dealt with
    left: dict[str, int]            # messages left out now, by reason (rules.LEFT)
    gone: int = 0                   # and bytes of the log that were cleaned before they were written
    unseen: list[str] = field(default_factory=list)     # of an export into a new file: named topics without a message
    lost: list[LostRow] = field(default_factory=list)   # of an export with skip_holes: what it passed over


def message_fields(record: Any) -> dict[str, object]:
    """The fields of a line. record: DecodedRecord."""
    properties = record.properties
    fields: dict[str, object] = {
        "topic": record.topic, "queue_id": record.queue_id, "queue_offset": record.queue_offset,
        "offset": record.physical_offset, "size": record.size, "msg_id": record.message_id, "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS"), "flag": record.flag, "sys_flag": record.sys_flag,
        "born_timestamp": record.born_timestamp, "born_host": record.born_host, "store_timestamp": record.store_timestamp,
        "store_host": record.store_host, "reconsume_times": record.reconsume_times, "properties": properties}
    raw = record.properties_bytes
    if not _gives_back(properties, raw):
        fields["properties_hex"] = raw.hex()
    body = bytes(record.body)
    try:
        return fields | {"body": body.decode(), "body_as": "utf8"}
    except UnicodeDecodeError:
        return fields | {"body": body.hex(), "body_as": "hex"}


def _gives_back(properties: dict[str, str], raw: bytes) -> bool:
    try:
        return encode_properties(properties).rstrip(b"\x02") == raw.rstrip(b"\x02")
    except (RmqStoreError, ValueError):
        return False


# ---- out

def export_lines(source: Any, out: IO[bytes] | io.RawIOBase, *, whole: bool = False, topics: Iterable[str] | None = None,
                 since: "int | datetime | None" = None, until: "int | datetime | None" = None,
                 progress: Callable[[int, int], None] | None = None,
                 **options: Any) -> LineResult:
    """Writes the messages of the store in directory `source` to `out`, one message a line, in the order of the log.

    whole=False: the messages that copy_messages takes as new messages; True: all messages. out: if it can be read and has
    lines of an interrupted or older export, the export continues after them and replaces a half line. Not synced. The source
    may be open elsewhere; then waiting delayed messages are not exported. Raises StoreStateError if `out` has other content,
    ConfigError if a named topic is a light queue, CorruptionError (a damaged source; the messages before the damage are
    written), OSError.
    """
    low, high = span_ms(since=since, until=until)
    reader = Source(source, options)
    files = ControlFiles(IoTable())
    levels = None if in_use(reader.root) else delay_offsets(files, reader.root)
    refuse_light(reader.root, wanted := topic_names(topics), options)
    rules = Rules(whole, wanted, levels, removed_queues(files, reader.root))
    begin = first = reader.begin()
    if out.seekable() and out.readable():
        begin = max(begin, _go_on(out, reader, rules, low, high))
        rules.left.clear()
    count, total = 0, reader.end()
    for block in reader.blocks(begin, since=low, until=high):
        for i in rules.chosen(block):
            out.write(_line(block.raw(i)))
            count += 1
        if progress is not None:
            progress(block.end, total)
    named = (rules.topics or set()) if begin == first else set()        # an earlier call may have met the others
    lost = [row for row in reader.lost() if wanted is None or row.topic in wanted]
    return LineResult(count, 0, dict(rules.left), reader.gone, sorted(t.decode() for t in named - rules.seen), lost)


def _line(raw: bytes) -> bytes:
    return json.dumps(message_fields(decode_record(raw)), separators=(",", ":")).encode() + b"\n"


def _go_on(out: Any, reader: Source, rules: Rules, since: int | None, until: int | None) -> int:
    """Behind which message of the log the lines in `out` end; cuts a half line off."""
    size = out.seek(0, os.SEEK_END)
    name = getattr(out, "name", "the output")
    tail, at = b"", size
    while at > 0 and tail.count(b"\n") < 2 and size - at < LINE_MAX:
        at = max(0, at - (1 << 20))
        out.seek(at)
        tail = out.read(size - at)
    end = tail.rfind(b"\n") + 1
    if end == 0:
        if tail and not b'{"topic":"'.startswith(tail[:10]):
            raise StoreStateError(f"{name} holds content that is not an export: give another name; nothing was written")
        out.seek(0)
        out.truncate(0)
        return 0
    line = tail[tail.rfind(b"\n", 0, end - 1) + 1:end]
    with suppress(ValueError, KeyError, TypeError):
        known = json.loads(line)
        offset, length = known["offset"], known["size"]
        for block in reader.blocks(offset, offset + 1) if reader.begin() <= offset else ():
            if len(block.topics) and _line(block.raw(0)) == line:
                _refuse_other_choice(out, name, reader, rules, since, until,
                                     tail[0 if at == 0 else tail.find(b"\n") + 1:end])
                out.seek(size - len(tail) + end)
                out.truncate()
                return int(offset + length)
    raise StoreStateError(f"{name} does not end with a message of {reader.root}: give another name, nothing was written")


def _refuse_other_choice(out: Any, name: str, reader: Source, rules: Rules, since: int | None, until: int | None,
                         last_lines: bytes) -> None:
    """What is chosen now and lies in front of the first line, or among the last ones, was chosen then. Of delayed messages who
    had the store open decided, too."""
    out.seek(0)
    first = json.loads(out.readline(LINE_MAX))["offset"]
    there = [json.loads(line) for line in last_lines.split(b"\n")[:-1]]
    known = {line["offset"] for line in there}
    missing = rules.topics is not None and there[-1]["topic"].encode() not in {*rules.topics, DELAYED}
    for begin, end in ((reader.begin(), first), (max(there[0]["offset"], reader.begin()), there[-1]["offset"])):
        for block in reader.blocks(begin, end, since=since, until=until) if begin < end and not missing else ():
            if any(block.topics[i] != DELAYED and block.offsets[i] not in known for i in rules.chosen(block)):
                missing = True
                break
    if missing:
        raise StoreStateError(f"{name} was written with another choice of topics or times: what is chosen now and was not then "
                              "would be missing. Give the same choice, or another name; nothing was written")


# ---- in

def import_lines(lines: IO[bytes], target: Any, *, name: str | None = None, progress: Callable[[int, int], None] | None = None,
                 _io: IoTable | None = None, **options: Any) -> LineResult:
    """Puts messages from JSON lines into the store in directory `target`, as new messages, each once. Makes a missing target.

    The target records the progress under `name`; the default name comes from the first line. If the import is interrupted,
    call it again with the same lines from their beginning: it continues where it was, and takes added lines too. A line that
    is not a message is an error; the messages of the lines before it are stored. progress(bytes, 0). Durable when it returns.
    Raises ConfigError with the number of the line, StoreStateError (other lines under a known name), StoreLocked, OSError, and
    the errors of put.
    """
    return _Import(lines, root_of(target), name, _io or IoTable(), progress).run(options)


class _Import:
    def __init__(self, lines: IO[bytes], root: str, name: str | None, io: IoTable,
                 progress: Callable[[int, int], None] | None) -> None:
        self.lines, self.root, self.io, self.progress = lines, root, io, progress
        self.head = lines.readline(LINE_MAX) if name is None else b""
        first = _ended(self.head)
        self.name = name if name is not None else f"{zlib.crc32(first):08x} {first[:200].decode('utf-8', 'replace')}"
        self.crc, self.position, self.number = 0, 0, 0
        self.crcs: dict[int, int] = {0: 0}
        self.left: Counter[str] = Counter()

    def run(self, options: dict[str, Any]) -> LineResult:
        use_unless_given(options, "topic_size_max_bytes", 255)
        with MessageStore.open(self.root, _io=self.io, _services=False, **options) as store:
            journal = Journal(ControlFiles(self.io), self.root, {"kind": "import", "name": self.name})
            to = Appender(store, journal, as_is=False, note=lambda position: {"crc": self.crcs[position]})
            self._pass(journal, to.position)
            if not journal.content.get("appending"):        # else for the interrupted call, whose records are looked for again
                journal.content["born"] = time.time_ns() // 1_000_000
            self.born = journal.content.get("born", 0)
            before = to.records
            self._take(to)
            to.end()
            store.wait_dispatched(DISPATCH_TIMEOUT_S)       # else the next open has it to do
            return LineResult(to.records - before - to.found, before, dict(self.left))

    def _read(self) -> Iterator[bytes]:
        if self.head:
            yield self.head
        yield from iter(lambda: self.lines.readline(LINE_MAX), b"")

    def _pass(self, journal: Journal, position: int) -> None:
        """Over what is in the target already."""
        self.source = self._read()
        while self.position < position and (line := next(self.source, b"")):
            self._count(line)
        if self.position != position or (position and self.crc != journal.content.get("crc")):
            raise StoreStateError(f"other lines were imported as {self.name[:60]!r} before, {position} bytes of them, into "
                                  f"{self.root}: give these a --name of their own")
        self.crcs = {self.position: self.crc}

    def _count(self, line: bytes) -> None:
        line = _ended(line)
        self.position += len(line)
        self.number += 1
        self.crc = zlib.crc32(line, self.crc)

    def _take(self, to: Appender) -> None:
        parts: list[tuple[bytes, int, int]] = []        # record, position behind its line, number of that
        size = 0
        wrong: ConfigError | None = None
        for line in self.source:
            try:
                record = self._taken(line) if line.strip() else b""
            except ConfigError as error:        # those before it go
                wrong = error
                break
            self._count(line)
            self.crcs[self.position] = self.crc
            if record:
                parts.append((record, self.position, self.number))
                size += len(record)
            if size >= PIECE:
                self._append(to, parts)
                parts, size = [], 0
                self.crcs = {to.position: self.crcs[to.position], self.position: self.crc}
                if self.progress is not None:
                    self.progress(self.position, 0)
        self._append(to, parts)
        if self.progress is not None:
            self.progress(self.position, 0)
        if wrong is not None:
            to.end()
            raise wrong
        to.passed(self.position)

    def _taken(self, line: bytes) -> bytes:
        """Empty for what a copy as new messages leaves out, too: as a new message consumers would see it."""
        record, sys_flag = _record(line, self.number + 1, self.born)
        if sys_flag & FLAG_TRANSACTION not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK):
            return record
        self.left["transaction"] += 1
        return b""

    def _append(self, to: Appender, parts: list[tuple[bytes, int, int]]) -> None:
        """Where the store refuses one, those before it go."""
        if not parts:
            return
        try:
            to.append(b"".join(record for record, _, _ in parts), [position for _, position, _ in parts])
        except (MessageIllegal, ConfigError) as error:
            rest = [part for part in parts if part[1] > to.position]        # others were there already
            if len(rest) == 1:
                to.end()
                error.add_note(f"it is line {rest[0][2]}; those before it are stored")
                raise
            half = len(rest) // 2
            self._append(to, rest[:half])
            self._append(to, rest[half:])


def _ended(line: bytes) -> bytes:
    """As it is once the line after it has been added."""
    return line if line.endswith(b"\n") else line + b"\n"


def _record(line: bytes, number: int, born: int) -> tuple[bytes, int]:
    """The line as a record without a place, born then where it does not say when, and its flags. Raises ConfigError."""
    try:
        fields = json.loads(line)
        if not isinstance(fields, dict):
            raise ValueError(f"{type(fields).__name__} instead of an object")
        topic, body = fields["topic"], _body(fields)
        if not isinstance(topic, str) or not topic:
            raise ValueError(f"topic is {topic!r}")
        given = {name: _number(name, fields[name]) for name in NUMBERS if name in fields}
        given.setdefault("born_timestamp", born)
        given["sys_flag"] = given.get("sys_flag", 0) & ~V6
        if "born_host" in fields:
            given["born_host"] = fields["born_host"]
        properties = _properties(fields)
        if given["sys_flag"] & FLAG_INNER_BATCH:
            _check_inner(body, properties, given["sys_flag"])
        return encode_record(topic, body, properties=properties, **given), given["sys_flag"]
    except KeyError as error:
        raise ConfigError(f"line {number} has no {error}: a message has a topic and a body") from None
    except (ValueError, TypeError, RecursionError, RmqStoreError) as error:
        raise ConfigError(f"line {number} is not a message ({error}): {line[:80]!r}: give JSON lines as `rmqstore export` "
                          "writes them") from error


def _check_inner(body: bytes, properties: bytes, sys_flag: int) -> None:
    """A line with the flag of an inner batch is one. Raises ValueError, CorruptionError."""
    count = len(decode_batch(inflate(body, sys_flag, INFLATED_MAX) if sys_flag & FLAG_COMPRESSED else body))
    said = number_of(decode_properties(properties).get("INNER_NUM"))
    if not count or said != count:
        raise ValueError(f"its sys_flag says that it is an inner batch, INNER_NUM is {said}, and the body has {count} messages")


def _number(name: str, value: object) -> Any:
    low, high = NUMBERS[name]
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{name} is {value!r}, numbers from {low} to {high} can be stored")
    return value


def _body(fields: dict[str, Any]) -> bytes:
    body, form = fields["body"], fields.get("body_as", "utf8")
    if not isinstance(body, str):
        raise ValueError(f"body is {type(body).__name__}: give text, or hex digits and \"body_as\":\"hex\"")
    if form not in ("utf8", "hex"):
        raise ValueError(f"body_as is {form!r}: give 'utf8' or 'hex'")
    return bytes.fromhex(body) if form == "hex" else body.encode()


def _properties(fields: dict[str, Any]) -> bytes:
    if isinstance(raw := fields.get("properties_hex"), str) and re.fullmatch(r"[0-9a-f]*", raw):
        return bytes.fromhex(raw)
    given = fields.get("properties") or {}
    if not isinstance(given, dict):
        raise ValueError(f"properties is {type(given).__name__}: give an object of text")
    properties = dict(given)
    for name, key in (("TAGS", "tags"), ("KEYS", "keys")):
        if fields.get(key) and name not in properties:
            properties[name] = fields[key]
    if not all(isinstance(v, str) for v in properties.values()):
        raise ValueError("a property is text")
    encoded = encode_properties(properties)
    return encoded + b"\x02" if encoded and not encoded.endswith(b"\x02") else encoded
