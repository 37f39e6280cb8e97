"""Copying messages of one store into another: as new messages, or as they are; each exactly once, whatever is broken off.

The copy reads the source as files and never writes it. The target holds how far the copy is (journal.py). It is locked
meanwhile, and open without services, so that it delivers and deletes nothing. A repeated call continues where the last one
ended, also with messages that the source got since. Control plane; one thread.
"""
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rmq_store.base.io._io import IoTable
from rmq_store.base.io.files import ControlFiles
from rmq_store.codec.delay import SCHEDULE_TOPIC
from rmq_store.codec.timer import span_ms
from rmq_store.config.load import resolve
from rmq_store.config.recorded import LIGHT, RECORDED
from rmq_store.errors import ConfigError, CorruptionError, StoreStateError
from rmq_store.log.recovery.holes import LostRow
from rmq_store.log.recovery.lockfile import in_use
from rmq_store.log.recovery.places import Places, numbered, refuse_file, root_of
from rmq_store.services.backup.content import JOURNALS
from rmq_store.services.backup.met import met, met_at
from rmq_store.services.backup.source import Block, Source
from rmq_store.services.cleaning.removing import removed_queues
from rmq_store.services.delay.service import delay_offsets
from rmq_store.store import MessageStore
from rmq_store.upkeep.moving.journal import Appender, Journal, use_unless_given
from rmq_store.upkeep.moving.rules import Rules, refuse_light, topic_names
from rmq_store.upkeep.moving.settings import Settings

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["CopyResult", "copy_messages"]

PIECE = 8 << 20
DISPATCH_TIMEOUT_S = 600
Progress = Callable[[int, int], None]       # log offset reached, log offset of the end


@dataclass(frozen=True)
class CopyResult:
    """The result of a copy."""

    copied: int                     # messages appended now
    total: int                      # by this and earlier calls
    position: int                   # log offset of the source behind the last message looked at
    left: dict[str, int]            # messages left out now, by reason (rules.LEFT)
    unseen: list[str]               # named topics of which no message was met
    gone: int = 0                   # bytes of the source's log that were cleaned before they were copied
    settings: list[str] = field(default_factory=list)       # as they are: files under config/ that were copied
    kept: list[str] = field(default_factory=list)           # and those of the target that others have changed, and that stayed
    lost: list[LostRow] = field(default_factory=list)       # with the source's option skip_holes: what the copy passed over

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"lost": [row._asdict() for row in self.lost]}


def copy_messages(source: Any, target: Any, *, as_is: bool = False, topics: Iterable[str] | None = None,
                  since: "int | datetime | None" = None, until: "int | datetime | None" = None,
                  source_options: dict[str, Any] | None = None,
                  progress: Progress | None = None, _io: IoTable | None = None, **options: Any) -> CopyResult:
    """Copies messages of the store in directory `source` into the store in directory `target`. It makes a missing target.

    as_is=False: as new messages, at the end of the same topics and queues, with new store times and queue offsets; body,
    properties, flags, born time and host stay the same. Delayed messages: docs/copying.md. Consumer offsets are not copied,
    because they would point to other messages. as_is=True: also queue offsets, store times, store hosts, transactions and the
    files under config/, so that groups, delayed messages and transactions continue where they were. The target must then be
    new, or made by this copy, and no other program may have put to it. topics: only these topics, by name. since, until: store
    times in ms since 1970 or as aware datetimes, both included. source_options, options: of the source and the target, as of
    MessageStore.open. With as_is=True a new target gets the file sizes of the source. progress(done, end): log offsets of the
    source, now and then.

    Durable when it returns. If the call is interrupted anywhere, also by kill -9 or a power cut, the same call continues, and
    each message is copied once. A later call copies newer messages. The source may be open elsewhere. Thread-safety: any; the
    target is locked. Raises ConfigError (as for a light queue); StoreLocked; CorruptionError (a damaged source; the messages
    before the damage are copied), StoreStateError, PutError, DurabilityError, OSError.
    """
    low, high = span_ms(since=since, until=until)
    wanted = topic_names(topics)
    reader = Source(source, source_options)
    if as_is and reader.options.skip_holes:
        raise ConfigError(f"{reader.root}: as they are, messages keep their queue offsets, and a queue has no gaps: without "
                          "skip_holes repair the store, or a copy of it, first; or copy its messages as new ones")
    reader.parts()              # refuses half a log before a target is made
    root = root_of(target)
    refuse_file(root)
    _refuse_nested(reader, root, options)
    refuse_light(reader.root, wanted, source_options or {})
    copy = _Copy(reader, root, as_is, wanted, low, high, progress or (lambda done, end: None), _io or IoTable())
    with copy.open(options) as store:
        copy.read_journal()             # another copy may have come to its end before the target was ours
        result = copy.run(store)
        store.wait_dispatched(DISPATCH_TIMEOUT_S)       # else the next open has it to do
        return result


def _refuse_nested(source: Source, root: str, options: dict[str, Any]) -> None:
    """Nothing is written where the source is read."""
    given = dict(options)
    chosen = resolve(given.pop("profile", None), given, root, config=given.pop("config", None))
    mine = Places(root, chosen)
    for target in (root, *mine.commitlogs, mine.consumequeue, mine.index):
        if source.has(target):
            raise ConfigError(f"{target} is the source {source.root}, or in it, where nothing is written: copy into another "
                              "directory")


class _Copy:
    def __init__(self, source: Source, root: str, as_is: bool, topics: list[str] | None, since: int | None, until: int | None,
                 progress: Progress, io: IoTable) -> None:
        self.source, self.root, self.as_is, self.topics = source, root, as_is, topics
        self.since, self.until, self.progress, self.io = since, until, progress, io
        self.files = ControlFiles(io)
        # Before the log is looked at: it has what they speak of.
        self.in_use = in_use(source.root)
        self.levels = None if as_is else delay_offsets(self.files, source.root)
        self.settings = Settings(self.files, source.root, topics) if as_is else None
        self.read_journal()

    def read_journal(self) -> None:
        self.journal = Journal(self.files, self.root, {
            "kind": "copy", "source": self.source.root, "as_is": self.as_is, "topics": self.topics, "since": self.since,
            "until": self.until})

    # ---- the target

    def open(self, options: dict[str, Any]) -> MessageStore:
        given = dict(options)
        use_unless_given(given, "topic_size_max_bytes", 255)        # what a broker took is not refused
        if self.as_is and not self.journal.known:
            self._refuse_other_messages(given)
            if not os.path.exists(os.path.join(self.root, "checkpoint")):       # it was never opened
                mine = self.source.options
                whole = (self.topics, self.since, self.until) == (None, None, None)
                for name in RECORDED:       # what decides what its files hold
                    if whole or name not in LIGHT:      # some messages alone do not continue a light queue
                        use_unless_given(given, name, mine[name])
            self._begin_log(given)
            if self.settings is not None:
                self.settings.begin(self.root)
        return MessageStore.open(self.root, _io=self.io, _services=False, **given)

    def _refuse_other_messages(self, options: dict[str, Any]) -> None:
        if os.path.isdir(os.path.join(self.root, "commitlog")):
            with MessageStore.open(self.root, readonly=True, **{k: v for k, v in options.items() if k != "readonly"}) as store:
                if store.max_log_offset > store.min_log_offset or store.topics():
                    raise StoreStateError(f"{self.root} has messages already: as they are, messages go into a new store, where "
                                          "they keep their queue offsets; copy them as new messages, or into another directory")

    def _begin_log(self, options: dict[str, Any]) -> None:
        """Queues that do not begin at offset 0 are those of a cleaned store: its log does not begin at 0 either, as places at
        their front that lead to offset 0 must lead to nothing. An unfiltered copy keeps the places of all messages so."""
        keywords = dict(options)
        chosen = resolve(keywords.pop("profile", None), keywords, self.root, config=keywords.pop("config", None))
        size = chosen.segment_size_bytes
        if chosen.commitlog_path:
            return
        begin = self.source.begin() // size * size
        if begin == 0 and self.since is not None:
            begin = size
        directory, aside = os.path.join(self.root, "commitlog"), os.path.join(self.root, JOURNALS)
        if begin == 0 or numbered(directory, 20):
            return
        self.files.make_dirs(self.root)
        for place in (directory, aside):
            self.files.mkdir(place)
        made = os.path.join(aside, "first.tmp")
        fd = self.files.open(made, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            self.io.fallocate(fd, 0, size)
            self.files.truncate(fd, size)
            self.files.sync(fd)
        finally:
            self.files.close(fd)
        self.files.rename(made, os.path.join(directory, f"{begin:020d}"))
        self.files.sync_dir(directory)
        self.files.sync_dir(self.root)

    # ---- the run

    def run(self, store: MessageStore) -> CopyResult:
        entry = self.journal.content
        finishing = bool(entry.get("running"))
        self._settle_levels(entry)
        to = Appender(store, self.journal, self.as_is)
        low = self.source.begin()
        self._same_source(entry, low)
        gone = max(0, low - to.position) if self.journal.known else 0
        to.position = max(to.position, low)
        rules = self._rules(entry)
        if entry.get("phase", "log") == "log":
            before = self.source.gone
            self._walk(to, rules, to.position, None)
            gone += self.source.gone - before
            entry["log_position"] = to.position
            if entry.get("waiting") is not None and entry["levels"] is not None:
                entry["phase"] = "waiting"          # what an earlier call left to whoever had the source open
                to.position = max(entry["waiting"], low)
                to.end()
        if entry.get("phase") == "waiting":
            self._walk(to, rules, to.position, entry["waiting_to"], [SCHEDULE_TOPIC.encode()])
            entry["waiting"] = None
            to.position = entry["log_position"]
        if entry["levels"] is None:
            entry["waiting_to"] = to.position
        entry.update(phase="log", running=False)
        taken, kept = self.settings.apply(self.root, entry, to.end) if self.settings is not None else ([], [])
        to.end()
        result = CopyResult(to.records - to.begun - to.found, to.records, to.position, dict(rules.left),
                            [t for t in self.topics or () if t not in entry["seen"]], gone, taken, kept,
                            [row for row in self.source.lost() if self.topics is None or row.topic in self.topics])
        if finishing and entry.get("waiting") is not None and not self.in_use:
            more = self.run(store)      # the call that was broken off had left what waits
            return replace(more, copied=result.copied + more.copied, gone=gone + more.gone)
        return result

    def _same_source(self, entry: dict[str, Any], low: int) -> None:
        """What was met last must be where it was, or what came behind it cannot be told from what was copied."""
        offset, crc = entry.get("met") or (-1, 0)
        if offset < low and entry["position"] <= self.source.end():
            return
        with suppress(CorruptionError):
            for part in self.source.parts() if entry["position"] <= self.source.end() else ():
                if part.start <= offset < part.end and met_at(part.path, part.start, offset) == (offset, crc):
                    return
        raise StoreStateError(f"{self.source.root} has no longer the message at log offset {max(offset, 0)} up to which it was "
                              "copied: another store is at this path now, or it lost its end in a crash. Copy into a new "
                              "store; or move the source to another path, then all of it is copied")

    def _settle_levels(self, entry: dict[str, Any]) -> None:
        """Which delayed messages wait is decided when a call begins, and holds for those that finish what it began."""
        if self.as_is:
            entry["levels"] = None
        elif not entry.get("running"):
            assert self.levels is not None
            entry["levels"] = None if self.in_use else {str(k): v for k, v in self.levels.items()}
            entry["running"] = True
        elif entry["levels"] is not None and self.in_use:
            raise StoreStateError(f"{self.source.root} is open now, and was not when the copy was begun that is to be "
                                  "finished: close it, or it delivers delayed messages that were copied")

    def _rules(self, entry: dict[str, Any]) -> Rules:
        levels = entry["levels"]
        return Rules(self.as_is, self.topics, None if levels is None else {int(k): v for k, v in levels.items()},
                     removed_queues(self.files, self.source.root))

    def _walk(self, to: Appender, rules: Rules, begin: int, end: int | None, topics: list[bytes] | None = None) -> None:
        parts: list[bytes] = []
        positions: list[int] = []
        entry = self.journal.content
        size, reached, total, last = 0, begin, self.source.end(), (-1, 0)
        damage: CorruptionError | None = None
        blocks = self.source.blocks(begin, end, since=self.since, until=self.until, topics=topics)
        while damage is None:
            try:
                block = next(blocks, None)
            except CorruptionError as error:        # what lies before it goes first
                block, damage = None, error
            if block is not None:
                chosen = rules.chosen(block)
                parts.append(_bytes_of(block, chosen))
                positions += [block.offsets[i] + block.sizes[i] for i in chosen]
                size, reached = size + len(parts[-1]), block.end
                if block.topics:
                    last = met(block.offsets[-1], block.raw(-1))
            self._note(rules)
            if positions and (size >= PIECE or block is None):
                to.append(b"".join(parts), positions)
                parts, positions, size = [], [], 0
            if not positions:
                to.passed(reached)
                entry["met"] = max(tuple(entry.get("met") or last), last)
            self.progress(reached, total)
            if block is None:
                break
        if damage is not None:
            to.end()
            raise damage

    def _note(self, rules: Rules) -> None:
        """What the journal is to know with the next piece."""
        entry = self.journal.content
        if entry.get("waiting") is None:
            entry["waiting"] = rules.first_waiting
        entry["seen"] = sorted({*entry.get("seen", []), *(t.decode() for t in rules.seen)}) if self.topics is not None else []


def _bytes_of(block: Block, chosen: list[int]) -> bytes:
    """The records in one piece: what lies in a row is taken as it is."""
    if len(chosen) == len(block.topics) and sum(block.sizes) == len(block.data):
        return block.data
    return b"".join(block.raw(i) for i in chosen)
