"""`rmqstore readback`: recovers a copy of a store and prints all that it returns, one JSON line each, in a fixed order.

The lines, their order and the questions are those of tools/interop (StoreDump.java), which asks the real RocketMQ: two stores
are compared by comparing two readbacks. The form of the lines is tests/golden/README.md. The main thread only.
"""
import argparse
import gzip
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rmq_store.cli import records
from rmq_store.cli.common import PATH, holes_argument, keywords, say_lost, store_arguments
from rmq_store.cli.exits import FINDINGS, FINE
from rmq_store.cli.output import Output, Progress
from rmq_store.cli.records import Line
from rmq_store.codec.layout import EXT_ADDRESS_MAX
from rmq_store.errors import ConfigError, RmqStoreError, StoreLocked, StoreRefusesToLoad, StoreStateError
from rmq_store.log.recovery.copying import copy_store
from rmq_store.log.recovery.holes import LostRow
from rmq_store.log.recovery.lockfile import holder, in_use
from rmq_store.log.recovery.places import Places
from rmq_store.services.consumer.light_offsets import LMQ_PREFIX
from rmq_store.services.integrity.choosing import chosen_options
from rmq_store.services.integrity.repair import repair
from rmq_store.status import GetStatus
from rmq_store.store import MessageStore

FAR = 4_000_000_000_000
TOLD = ("default", "derived", "files", "memory", "disk", "auto")        # origins of values that an open finds out by itself
PLACES = ("readonly", "skip_holes", "commitlog_path", "commitlog_paths_readonly", "consumequeue_path", "index_path")
DISPATCH_TIMEOUT_S = 600


def arguments(parser: argparse.ArgumentParser) -> None:
    store_arguments(parser)
    parser.add_argument("--tmp", type=PATH, metavar="DIR", help="directory for the temporary copy (default: TMPDIR)")
    parser.add_argument("--compat", choices=("4.9", "5.x"), help="version whose rules to follow (default 5.x)")
    holes_argument(parser)
    parser.add_argument("--like", type=PATH, metavar="EXPECTED", help="answer the time, get and key queries of this readback "
                        "(.jsonl or .jsonl.gz), in the same order")


def run(args: argparse.Namespace, out: Output) -> int:
    like = None if args.like is None else _Questions(args.like)
    more = {} if args.compat is None else {"compat": args.compat}
    root, chosen = chosen_options(args.store, keywords(args) | more)
    if in_use(root):
        raise StoreLocked(root, holder(os.path.join(root, "lock")))
    given = {name: chosen[name] for name in chosen if chosen.origin(name).split()[0] not in TOLD and name not in PLACES}
    try:
        with tempfile.TemporaryDirectory(prefix="rmqstore-readback-", dir=args.tmp) as copy, _copied(
                Places(root, chosen), copy, args), MessageStore.open(copy, _environment={}, _services=False, **given) as store:
            if not store.wait_dispatched(DISPATCH_TIMEOUT_S):
                raise StoreStateError(f"{args.store}: dispatch did not catch up within {DISPATCH_TIMEOUT_S} s: try again")
            with Progress("read", unit="messages") as progress:
                reader = _Readback(store, out, like, progress)
                reader.all()
            return FINDINGS if reader.problems else FINE
    except StoreRefusesToLoad:
        out.line('{"t":"store","load":false}')
        raise       # main says why on standard error, and ends with 2


@contextmanager
def _copied(places: Places, to: str, args: argparse.Namespace) -> Iterator[None]:
    """Recovery writes: it is done to a copy, and so is the repair of lost files. An error names the copy, and says so."""
    copy_store(places, to)
    try:
        if args.skip_holes:
            steps = repair(to, dry_run=False, open_store=MessageStore.open).steps
            say_lost([LostRow(**row) for step in steps for row in step.lost or ()], args, places.root, "put tombstones for")
        yield
    except (RmqStoreError, OSError) as error:
        error.add_note(f"{to} was a copy of {places.root}; the command did not change the original")
        raise


class _Questions:
    """The questions of another readback, in its order."""

    def __init__(self, path: str) -> None:
        self.time: dict[tuple[str, int], list[int]] = {}
        self.get: list[tuple[str, int, int, int]] = []
        self.key: list[tuple[str, str, int, int, int]] = []
        opener = gzip.open if os.fspath(path).endswith(".gz") else open
        with opener(path, "rt", encoding="utf-8") as lines:
            for text in lines:
                if '"t":"time"' in text or '"t":"get"' in text or '"t":"key"' in text:
                    try:
                        self._take(json.loads(text))
                    except (ValueError, KeyError) as error:
                        raise ConfigError(f"--like {path}: not a readback line ({error}): {text[:80]!r}") from error

    def _take(self, line: dict[str, Any]) -> None:
        if line["t"] == "time":
            self.time.setdefault((line["topic"], line["queueId"]), []).append(line["ts"])
        elif line["t"] == "get":
            self.get.append((line["topic"], line["queueId"], line["offset"], line["maxMsgs"]))
        elif line["t"] == "key":
            self.key.append((line["topic"], line["key"], line["maxNum"], line["begin"], line["end"]))


class _Readback:
    """One pass over an open store."""

    def __init__(self, store: Any, out: Output, like: _Questions | None, progress: Progress) -> None:
        self.store = store
        self.out = out
        self.like = like
        self.progress = progress
        self.messages = 0
        self.problems = 0
        self.keys: dict[str, dict[str, None]] = {}      # topic -> keys in the order they were met
        self.reached: set[int] = set()                  # physical offsets that a queue leads to

    def all(self) -> None:
        store = self.store
        queues = [(t, q) for t in sorted(store.topics(), key=records.java_order) for q in sorted(store.queues(t))
                  if store.max_offset(t, q) > 0]
        self._print(Line(t="store", load=True, minPhyOffset=store.min_log_offset, maxPhyOffset=store.max_log_offset,
                         queues=len(queues)))
        for topic, queue_id in queues:
            self._queue(topic, queue_id)
        if self.like is not None:
            for (topic, queue_id), moments in self.like.time.items():
                if (topic, queue_id) not in queues:
                    self._times(topic, queue_id, moments)
        for probe in self._probes(queues) if self.like is None else self.like.get:
            self._get(*probe)
        if self.like is None:
            self._keys()
        else:
            for question in self.like.key:
                self._key(*question)
        self._log()
        self._print(Line(t="end", messages=self.messages, problems=self.problems))

    def _print(self, line: Line) -> None:
        self.out.line(line.text())

    def _problem(self, **fields: object) -> None:
        self.problems += 1
        self._print(Line(t="problem", **fields))

    # ---- queues

    def _queue(self, topic: str, queue_id: int) -> None:
        store = self.store
        low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        self._print(Line(t="queue", topic=topic, queueId=queue_id, min=low, max=high,
                         earliestTime=store.earliest_time(topic, queue_id), total=high - low))
        times: set[int] = set()
        offset = low
        while offset < high:
            result = store.get(topic, queue_id, offset, max_count=32, _slave_rules=True, _whole=True)
            if result.status is not GetStatus.FOUND:
                self._problem(topic=topic, queueId=queue_id, offset=offset, status=result.status.name)
                offset = max(offset + 1, result.next_offset)
                continue
            for place, message in enumerate(result, offset):
                self._message(topic, queue_id, place, message)
                times.add(message.store_timestamp)
            self.progress.at(self.messages)
            offset = result.next_offset
        if self.like is not None:
            self._times(topic, queue_id, self.like.time.get((topic, queue_id), ()))
        elif times:
            self._times(topic, queue_id, _moments(sorted(times)))

    def _message(self, topic: str, queue_id: int, place: int, message: Any) -> None:
        physical, size, tags_code = self.store.raw_entry(topic, queue_id, place)
        if topic.startswith(LMQ_PREFIX) and message.topic != topic:     # the record is in the row of its own queue
            self._print(Line(t="light", topic=topic, queueId=queue_id, cqOffset=place, cqPhyOffset=physical, cqSize=size,
                             tagsCode=tags_code))
            return
        line = Line(t="msg", cqOffset=place, cqPhyOffset=physical, cqSize=size, tagsCode=tags_code)
        if tags_code <= EXT_ADDRESS_MAX:
            found, code, timestamp, bit_map = self.store.ext_unit(topic, queue_id, tags_code)
            unit = Line(found=bool(found))
            if found:
                unit.add(tagsCode=code, storeTs=timestamp, bitMap=bytes(bit_map).hex())
            line.add(ext=unit)
        self._print(records.record_line(line, message))
        self.messages += 1
        self.reached.add(message.offset)
        known = self.keys.setdefault(topic, {})
        properties = message.properties
        for key in properties.get("KEYS", "").split(" "):
            if key:
                known[key] = None
        if "UNIQ_KEY" in properties:
            known[properties["UNIQ_KEY"]] = None

    # ---- questions

    def _times(self, topic: str, queue_id: int, moments: Iterable[int]) -> None:
        for ts in moments:
            self._print(Line(t="time", topic=topic, queueId=queue_id, ts=ts,
                             offset=self.store.offset_by_time(topic, queue_id, ts)))

    def _probes(self, queues: list[tuple[str, int]]) -> Iterator[tuple[str, int, int, int]]:
        for i, (topic, queue_id) in enumerate(queues):
            high = self.store.max_offset(topic, queue_id)
            yield from ((topic, queue_id, offset, count) for offset, count in (
                (-1, 32), (0, 1), (0, 7), (0, 1000), (high // 2, 32), (max(0, high - 1), 32), (high, 32), (high + 1, 32),
                (high + 1000, 32)))
            if i + 1 == len(queues) or queues[i + 1][0] != topic:
                yield topic, 999, 0, 32
        yield "NoSuchTopic", 0, 0, 32
        yield "NoSuchTopic", 0, 5, 32

    def _get(self, topic: str, queue_id: int, offset: int, count: int) -> None:
        result = self.store.get(topic, queue_id, offset, max_count=count, _slave_rules=True, _whole=True)
        sizes = [message.size for message in result]
        self._print(Line(t="get", topic=topic, queueId=queue_id, offset=offset, maxMsgs=count, status=result.status.name,
                         next=result.next_offset, min=result.min_offset, max=result.max_offset, n=len(sizes),
                         bytes=sum(sizes)))

    def _key(self, topic: str, key: str, count: int, begin: int, end: int) -> list[int]:
        """Prints one query; returns the store times of its hits."""
        result = self.store.query_key(topic, key, max_count=count, begin_time=begin, end_time=end, exact=False)
        hits = [(message.offset, message.store_timestamp) for message in result]
        self._print(Line(t="key", topic=topic, key=key, maxNum=count, begin=begin, end=end,
                         indexLastTs=result.index_last_timestamp, indexLastPhy=result.index_last_offset,
                         hits=[offset for offset, _ in hits]))
        return [timestamp for _, timestamp in hits]

    def _keys(self) -> None:
        for topic in sorted(self.keys, key=records.java_order):
            for i, key in enumerate(list(self.keys[topic])[:400]):
                times = self._key(topic, key, 32, 0, FAR)
                if i % 16:
                    continue
                for count in (1, 64, 100):
                    self._key(topic, key, count, 0, FAR)
                if times:
                    first, last = times[0], times[-1]
                    for begin, end in ((first, last), (first + 1000, FAR), (0, first - 1000), (last + 60_000, FAR)):
                        self._key(topic, key, 32, begin, end)
            self._key(topic, "no-such-key", 32, 0, FAR)
        self._key("NoSuchTopic", "k", 32, 0, FAR)

    # ---- the log

    def _log(self) -> None:
        for kind, offset, size, message in self.store.log_records():
            if message is None:
                self._print(Line(t="log", kind=kind, phyOffset=offset, size=size))
                continue
            if offset in self.reached:
                self._print(Line(t="log", kind="msg", phyOffset=offset, size=size))
            else:
                self._print(records.record_line(Line(t="log", kind="unqueued"), message))
            found = self.store.message_at(offset)
            if found is None or found.offset != offset:
                self._problem(phyOffset=offset, status="lookMessageByOffset")


def _moments(times: list[int]) -> list[int]:
    """Which times to ask for: up to ten of a queue's store times and the milliseconds behind them, and three outside."""
    n = len(times)
    chosen = times if n <= 10 else [times[i * (n - 1) // 9] for i in range(10)]
    return sorted({0, times[0] - 1, times[-1] + 100_000, *chosen, *(t + 1 for t in chosen)})
