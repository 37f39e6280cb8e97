"""What is done with a damaged store, one action after the other; each answers, raises a typed error, or is a finding.

READERS may change nothing. WRITERS get a copy each, and what they leave is opened again.
"""
import contextlib
import io
import itertools
import os
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from rmq_store import MessageStore, errors, scrub, verify
from rmq_store.access.bulk._columns import (
    BYTES_COLUMNS,
    INT32_COLUMNS,
    INT64_COLUMNS,
    MAP_COLUMN,
    TEXT_COLUMNS,
    Split,
)
from rmq_store.access.bulk._queues import index_columns, queue_columns, record_time
from rmq_store.access.bulk._rebuild import count_keys, index_part, queue_part
from rmq_store.base.io._io import IoTable, ProbeIo
from rmq_store.cli.main import main
from rmq_store.services.integrity.repair import repair
from rmq_store.services.statistics.live import read_live
from rmq_store.spark import staging, stores
from rmq_store.spark.options import ReadOptions
from rmq_store.spark.splits import pieces_of, plan
from tests.fuzz.cases import Base, Place, What
from tests.fuzz.judge import Must

STEPS_MAX = 3000        # of a walk over one queue: an answer that leads nowhere is a hang
ROWS_MAX = 20_000
COLUMNS = (*INT32_COLUMNS, *INT64_COLUMNS, *TEXT_COLUMNS, *BYTES_COLUMNS, MAP_COLUMN)
EXITS = (0, 1, 2, 3, 4, 64, 130)
ALLOWED = (errors.RmqStoreError, OSError)


class Finding(Exception):
    """A store that does what no store may."""


@dataclass
class Case:
    """One damaged store: where it lies, how it is opened, what must be found in it."""

    base: Base
    root: Path
    must: Must
    random: Random
    given: dict[str, Any] = field(default_factory=dict)     # sizes, or none: then the files tell them
    trusted: bool = True        # what is found may be held against `must`: the sizes were given

    def io(self) -> IoTable:
        """Every other case under guard pages."""
        return ProbeIo(keep_bytes=False) if self.random.random() < 0.5 else IoTable()


def look(m: Any) -> None:
    """Every field of a message."""
    _ = (m.topic, m.queue_id, m.queue_offset, m.offset, m.size, bytes(m.body), m.tags, m.keys, m.properties, m.flag, m.sys_flag,
         m.born_timestamp, m.store_timestamp, m.born_host, m.store_host, m.reconsume_times, m.msg_id, m.body_crc_ok, m.raw,
         m.unique_key, m.prepared_transaction_offset, m.properties_raw, repr(m))


def tolerate(calls: Iterator[Any]) -> None:
    try:
        for _ in calls:
            pass
    except ALLOWED as error:
        told(error)


def told(error: BaseException) -> None:
    """A typed error says what it is about."""
    if not str(error).strip():
        raise Finding(f"{type(error).__name__} says nothing") from error
    if (isinstance(error, OSError) and not isinstance(error, errors.RmqStoreError) and error.filename is None
            and not re.search(r"/\w+/", str(error))):
        raise Finding(f"{error!r} names no path") from error


def read_log(s: MessageStore) -> Iterator[None]:
    for m in s.scan():
        look(m)
        yield
    for _ in s.log_records():
        yield


def read_queue(s: MessageStore, topic: str, queue: int, found: dict[Place, What]) -> Iterator[None]:
    at, high = s.min_offset(topic, queue), s.max_offset(topic, queue)
    for step in itertools.count():
        result = s.get(topic, queue, at, 32)
        for m in result:
            look(m)
            if m.topic != topic or m.queue_id != queue:
                raise Finding(f"{topic}/{queue} gave a message of {m.topic}/{m.queue_id}")
            found[topic, queue, m.queue_offset] = (m.offset, m.size, zlib.crc32(m.raw))
        if result.next_offset <= at or at >= high or step > STEPS_MAX:
            break                       # entries beyond number: a name said so; each call was answered
        at = result.next_offset
        yield
    for sql in ("TAGS CONTAINS 'a' OR UNIQ_KEY > 5.5 OR KEYS = TAGS", "_ IS NULL OR WAIT IN ('true', '\ufffd') AND KEYS < 3"):
        for m in s.get(topic, queue, at - 32, 32, sql=sql):
            look(m)
        yield
    for offset in (-1, 0, high - 1, high, high + 1, 1 << 62, (1 << 63) - 1):
        s.get(topic, queue, offset)
        s.raw_entry(topic, queue, offset)
        yield
    for t in (0, -1, 1_700_000_000_000, (1 << 63) - 1):
        for boundary in ("lower", "upper", "nearest"):
            s.offset_by_time(topic, queue, t, boundary=boundary)
        yield
    s.earliest_time(topic, queue)


def read_keys(s: MessageStore, topic: str) -> Iterator[None]:
    for key in ("k1", "Aa", "k399", "u1", "BB", "nothing", "after"):
        for m in s.query_key(topic, key):
            look(m)
        s.message_by_unique_key(topic, key)
        yield


def read_all(s: MessageStore) -> dict[Place, What]:
    """Asks everything; gives what the queues gave."""
    found: dict[Place, What] = {}
    s.stats()
    s.delay_levels()
    tolerate(read_log(s))
    for topic in s.topics():
        for queue in s.queues(topic):
            tolerate(read_queue(s, topic, queue, found))
        tolerate(read_keys(s, topic))
    for offset in (-1, 0, 1, 91, 65536, 1 << 40, (1 << 63) - 1):
        s.message_at(offset)
    s.earliest_time()
    s.check_self()
    s.lag()
    return found


def demand(s: MessageStore, found: dict[Place, What], wanted: dict[Place, What], when: str) -> None:
    """All of `wanted` was found, or is when it is asked for alone."""
    lost = []
    for place, what in sorted(wanted.items()):
        if found.get(place) != what:
            try:
                got = [(m.queue_offset, m.offset) for m in s.get(place[0], place[1], place[2], 1)]
            except ALLOWED as error:
                got = [error]
            if got != [(place[2], what[0])]:
                lost.append((place, what[0], got, found.get(place)))
    if lost:
        raise Finding(f"{when}: {len(lost)} of {len(wanted)} whole messages are not readable in their queue: {lost[:3]}")


# ---- readers

def open_readonly(c: Case) -> None:
    with MessageStore.open(c.root, readonly=True, _io=c.io(), **c.given) as s:
        found = read_all(s)
        if c.trusted and c.must.queues_whole and c.must.log_whole and not s.stats()["needs_recovery"]:
            demand(s, found, c.must.there, "readonly")


def open_readonly_bare(c: Case) -> None:
    with MessageStore.open(c.root, readonly=True) as s:
        read_all(s)


def verify_all(c: Case) -> None:
    found = [str(f) for f in verify(c.root, _io=c.io(), **c.given)]
    steps = repair(c.root, dry_run=True, restore=True, **c.given).steps
    if not found and [s for s in steps if s.kind not in ("restore", "none")]:
        raise Finding(f"nothing is wrong, and repair would {steps}")


def verify_files(c: Case) -> None:
    list(verify(c.root, files_only=True, **c.given))
    list(verify(c.root))


def scrub_only(c: Case) -> None:
    scrub(c.root, bytes_per_s=None, _io=c.io(), **c.given)


def journals(c: Case) -> None:
    read_live(str(c.root))
    list(staging.journals(str(c.root)))


def bulk_log(c: Case) -> None:
    """As Spark reads: pieces of any size, each from where a task would begin."""
    broker = stores.Broker("b", str(c.root))
    options = ReadOptions.parse({"path": str(c.root), "splitSize": str(c.random.choice([4096, 65536, 1 << 20]))})
    pieces = [piece for part in plan(options) for piece in part]
    files = stores.log_files(str(c.root), True)
    for file in files:
        tolerate(iter([file.first_time() and None]))
    small = list(itertools.islice(pieces_of(broker, files, 0, (1 << 63) - 1, c.random.choice([700, 5000, 1 << 20])), 200))
    for piece in [*pieces[:20], *c.random.sample(small, min(len(small), 20))]:
        rows = 0
        with Split(piece.path, piece.start, piece.begin, piece.end, newest=piece.newest, io=c.io(),
                   verify=c.random.choice(["none", "header", "crc"]), mapped=c.random.random() < 0.5) as split:
            while (batch := split.batch(COLUMNS, max_rows=c.random.choice([1, 7, 4096]))) is not None and rows < ROWS_MAX:
                rows += batch[0]
                split.take_bad()
            _ = (split.first, split.position, split.tail, split.done)


def bulk_derived(c: Case) -> None:
    for _, _, directory in stores.queues(str(c.root)):
        for _, path, size in stores.queue_files(directory)[:20]:
            for begin in (0, 1, size // 20 - 1, size // 20, 1 << 40):
                queue_columns(path, begin, 5000)
    for path in stores.index_files(str(c.root)):
        for base in (40, 480, os.stat(path).st_size, 1 << 40):
            index_columns(path, base, 0, 5000)
    for file in stores.log_files(str(c.root), True):
        for at in (0, 8, file.size - 1, file.size, 1 << 40):
            record_time(file.path, at)


def bulk_rebuild(c: Case) -> None:
    """Queues and index of the log, made beside the store."""
    scratch = c.root.parent / "made"
    scratch.mkdir(exist_ok=True)
    broker = stores.Broker("b", str(c.root))
    pieces = list(itertools.islice(pieces_of(broker, stores.log_files(str(c.root)), 0, (1 << 63) - 1, 1 << 20), 100))
    for piece in pieces:
        given = (piece.broker, piece.path, piece.start, piece.begin, piece.end, piece.newest, piece.aligned)
        queue_part(given, str(scratch), 4000)
        count_keys(given)
        index_part([given], str(scratch), str(scratch), 20260101000000000, 100, 500, 0, 400)


def command(c: Case, *arguments: object) -> str:
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="surrogateescape")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            code: Any = main([str(a) for a in arguments])
        except SystemExit as end:
            code = end.code
        out.flush()
    text = out.buffer.getvalue().decode("utf-8", "replace")    # type: ignore[attr-defined]
    if code not in EXITS or "Traceback (most recent" in text:
        raise Finding(f"rmqstore {arguments[0]} ended with {code!r}: {text[-500:]}")
    if code not in (0, 1) and not text.strip():
        raise Finding(f"rmqstore {arguments[0]} ended with {code!r} and said nothing")
    return text


def _options(c: Case) -> list[str]:
    return [part for name, value in c.given.items() for part in ("-o", f"{name}={value}")]


def cli_look(c: Case) -> None:
    given = _options(c)
    every = (["stat"], ["stat", "--json"], ["stat", "-w", "0.01", "-n", "1"], ["offsets", "show"], ["offsets", "lag"],
             ["topics", "list"], ["groups", "list"], ["verify", "--json"], ["verify", "--files"],
             ["scrub", "--rate", "0"], ["repair", "--dry-run"])
    for arguments in c.random.sample(every, 6):
        command(c, *arguments, c.root, *given)


def cli_messages(c: Case) -> None:
    given = _options(c)
    topic = c.random.choice(["T", "topic-2", "%RETRY%x", "nothing"])
    every = (["get", "-t", topic, "-q", 1], ["get", "-t", topic, "-i", -3, "--json"], ["query", "-t", topic, "-k", "Aa"],
             ["query", "--offset", 91], ["query", "-t", topic, "--time", 1_700_000_000_000, "-q", 1],
             ["query", "-i", "7F00000100002A9F0000000000000000"], ["tail", "-t", topic, "--for", "0", "-i", "0"])
    for arguments in c.random.sample(every, 4):
        command(c, arguments[0], c.root, *arguments[1:], *given)


def cli_dump(c: Case) -> None:
    every = sorted(p for p in c.root.rglob("*") if not p.is_dir())
    for path in c.random.sample(every, min(len(every), 5)):
        command(c, "dump", path, "--json", "--count", 300)
        command(c, "dump", path, "--hex", "--count", 40, "--kind",
                c.random.choice(["commitlog", "consumequeue", "consumequeue_ext", "index", "checkpoint"]))


READERS: list[Callable[[Case], None]] = [
    open_readonly, open_readonly_bare, verify_all, verify_files, scrub_only, journals, bulk_log, bulk_derived, bulk_rebuild,
    cli_look, cli_messages, cli_dump]


# ---- writers

def reopen(c: Case, **more: Any) -> MessageStore:
    return MessageStore.open(c.root, _io=c.io(), **{**c.base.options, **more})


def put_some(c: Case, s: MessageStore) -> list[tuple[str, int, Any]]:
    """Puts into queues that are there and one that is not; the places."""
    put = []
    queues = sorted({(t, q) for t, q, _ in c.base.messages if not t.startswith(("SCHEDULE", "RMQ_SYS", "%RETRY%"))})
    for i in range(6):
        topic, queue = c.random.choice(queues) if queues and i % 2 else (f"New{i % 3}", i % 2)
        put.append((topic, queue, s.put(topic, b"after %d" % i, queue_id=queue, keys="after")))
    return put


def check(s: MessageStore, put: list[tuple[str, int, Any]], when: str) -> None:
    for i, (topic, queue, place) in enumerate(put):
        m, got = s.message_at(place.offset), s.get(topic, queue, place.queue_offset, 1)
        if m is None or bytes(m.body) != b"after %d" % i:
            raise Finding(f"put {i} {when} is not at {place.offset}")
        if len(got) != 1 or got[0].offset != place.offset:
            raise Finding(f"put {i} {when} is not in its queue: {topic}/{queue} at {place.queue_offset}: {got!r}")


def kept_aside(root: Path, count: int) -> bool:
    data = b"".join(p.read_bytes() for p in sorted((root / ".salvage").iterdir()))
    return all(b"after %d" % i in data for i in range(count))


def write(c: Case) -> None:
    """Opens for writing, reads, puts, closes, twice: what was put and what was read are there afterwards."""
    delay = c.random.choice(["store_only", "store_only", "deliver"])
    with reopen(c, delay=delay) as s:
        before = read_all(s)
        if c.trusted:
            demand(s, before, c.must.now, "opened for writing")
        put = put_some(c, s)
        s.flush()
        if not s.wait_dispatched(20):
            raise Finding("what was put is not dispatched")
        check(s, put, "in the same store")
    with reopen(c, delay="store_only") as s:
        if s.stats()["recovered"]:
            raise Finding("a closed store recovers")
        if s.cut_bytes == 0:
            check(s, put, "after the second open")
            demand(s, read_all(s), before, "the second open says something else than the first")
        elif not kept_aside(c.root, len(put)):
            # Upstream's rule: damage in one of the last files, met only now, cuts the log.
            raise Finding("what was put was cut off and is not in .salvage/")


def mend(c: Case) -> None:
    """Repairs; afterwards nothing is left, or it is said what cannot be mended; and what was whole is readable."""
    result = repair(c.root, dry_run=False, restore=c.random.random() < 0.3, open_store=MessageStore.open, _io=c.io(), **c.given)
    if result.left and not any(s.kind == "none" for s in result.steps):
        again = repair(c.root, dry_run=False, open_store=MessageStore.open, **c.given)
        if again.left:
            raise Finding(f"repair leaves {[str(f) for f in again.left][:3]} after {[s.kind for s in result.steps]}")
    if any(s.kind == "none" for s in result.steps):
        return
    with reopen(c, delay="store_only") as s:
        found = read_all(s)
        if c.trusted and c.must.log_whole and s.cut_bytes == 0:
            demand(s, found, c.must.whole, f"after repair ({[s.kind for s in result.steps]})")
        put = put_some(c, s)
        s.flush()
        s.wait_dispatched(20)
        check(s, put, "after repair")


def clean(c: Case) -> None:
    """Old files, expired queues, a topic go; then puts."""
    with reopen(c) as s:
        s.cleanable(0)
        s.clean(hours=0, pace_ms=0)
        s.clean_expired_queues()
        for topic in sorted(s.topics())[:1]:
            s.delete_topics(topic)
        put = put_some(c, s)
        s.flush()
        s.wait_dispatched(20)
        check(s, put, "after cleaning")
    with reopen(c) as s:
        read_all(s)
        if s.cut_bytes == 0:
            check(s, put, "after cleaning and another open")


def consume(c: Case) -> None:
    """A group takes all there is, gives some back; lag, offsets, tables."""
    with reopen(c) as s:
        topics = [t for t in s.topics() if not t.startswith(("SCHEDULE", "%RETRY%")) and len(t) < 120][:3] or ["T"]
        with s.consumer("g", topics) as consumer:
            for i in range(60):
                batch = consumer.poll(timeout=0)
                if batch is None:
                    break
                for m in batch:
                    look(m)
                if i % 7 == 3:
                    batch.nack()
                else:
                    batch.ack()
        s.lag()
        s.group_stats()
        for queue in s.queues(topics[0]):
            s.reset_offset("g", topics[0], queue_id=queue, offset=s.min_offset(topics[0], queue))
        s.offsets.flush()
        s.topic_table.flush()
        s.group_table.flush()
    with reopen(c) as s:
        s.lag()
        s.runtime_info()
        s.broker_stats()


def cli_write(c: Case) -> None:
    given = _options(c)
    every: tuple[list[object], ...] = (
        ["readback"], ["clean", "-n"], ["offsets", "commit", "-g", "g", "-t", "T", "-q", 0, "-i", 1],
        ["topics", "set", "-t", "T", "-r", 2], ["groups", "set", "-g", "g", "--retries", 2], ["topics", "unused", "-n"],
        ["scrub", "--rate", "0", "--make-manifests"], ["clean", "--hours", "0"])
    for arguments in c.random.sample(every, 4):
        words = 2 if arguments[0] in ("offsets", "topics", "groups") else 1
        command(c, *arguments[:words], c.root, *arguments[words:], *given)


def commit(c: Case) -> None:
    """Spark's commit: finishes what a journal says is pending, sweeps."""
    staging.commit_staged(str(c.root), "a", 7, [], {**c.base.options})


WRITERS: list[Callable[[Case], None]] = [mend, clean, consume, cli_write, commit]


