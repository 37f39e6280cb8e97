"""What a store must be: a plain list of messages, and what every read of it must return.

The model knows the rules by which places are given out (queue offsets by topic and queue, physical offsets by size, one file
after the other) and nothing of how they are kept. `check` compares all that a store returns with it.
"""
import bisect
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from rmq_store import MessageStore
from rmq_store.codec._java_hash import java_hash
from rmq_store.status import GetStatus

PREPARED, COMMIT, ROLLBACK = 4, 8, 12
BLANK = 8


@dataclass(frozen=True)
class Kept:
    """One message as it was put, and (but for -1, not known) the place it was given."""

    topic: str
    queue_id: int
    body: bytes
    tags: str | None = None
    keys: tuple[str, ...] = ()
    unique_key: str | None = None
    sys_flag: int = 0
    size: int = -1
    offset: int = -1
    queue_offset: int = -1
    store_timestamp: int = -1

    @property
    def queued(self) -> bool:
        return self.sys_flag in (0, COMMIT)

    @property
    def indexed(self) -> list[str]:
        """The keys the index has, in its order."""
        if self.sys_flag == ROLLBACK:
            return []
        return ([self.unique_key] if self.unique_key else []) + list(self.keys)

    @property
    def end(self) -> int:
        return self.offset + self.size


def content(message: Any) -> Kept:
    """What a message view says of itself."""
    assert message.body_crc_ok
    return Kept(message.topic, message.queue_id, bytes(message.body), message.tags, tuple((message.keys or "").split()),
                message.unique_key, message.sys_flag & ~0x30, message.size, message.offset, message.queue_offset,
                message.store_timestamp)


def same(message: Any, kept: Kept) -> bool:
    return content(message) == kept


def collide(topic: str, key: str) -> int:
    """What the index knows of a key."""
    return abs(java_hash(f"{topic}#{key}"))


class Model:
    """The list, the queues it makes, and how much of it no kill may take."""

    def __init__(self, segment_size: int) -> None:
        self.segment_size = segment_size
        self.log: list[Kept] = []
        self.queues: dict[tuple[str, int], list[Kept]] = {}
        self.position = 0
        self.safe = 0               # the first so many messages survive any kill of the process

    # ---- putting

    def place(self, size: int) -> int:
        """Where the next `size` bytes go: behind the last record, or, with an end-of-file record between, in the next file."""
        file_end = (self.position // self.segment_size + 1) * self.segment_size
        return file_end if self.position + size + BLANK > file_end else self.position

    def add(self, kept: Kept) -> None:
        assert kept.offset == self.place(kept.size), (kept, self.position, self.segment_size)
        queue = self.queues.setdefault((kept.topic, kept.queue_id), [])
        assert kept.queue_offset == (len(queue) if kept.queued else 0), kept
        assert not self.log or kept.store_timestamp >= self.log[-1].store_timestamp, (self.log[-1], kept)
        self.log.append(kept)
        if kept.queued:
            queue.append(kept)
        self.position = kept.end

    def note_safe(self, end: int) -> None:
        """Everything below log offset `end` survives a kill."""
        while self.safe < len(self.log) and self.log[self.safe].end <= end:
            self.safe += 1

    # ---- after a kill

    def recovered(self, store: MessageStore, begun: list[Kept]) -> None:
        """The Ack rule and the Prefix rule: what is there is a prefix of what was put, with all that is safe.

        `begun`: what the operation that the kill broke off was putting; its places are not known.
        """
        found = [content(message) for message in store.scan()]
        assert len(found) >= self.safe, f"{len(found)} of {self.safe} acknowledged messages are left"
        assert len(found) <= len(self.log) + len(begun), f"{len(found)} messages of {len(self.log)} + {len(begun)} put"
        for one, kept in zip(found, self.log, strict=False):
            assert one == kept
        extra = found[len(self.log):]
        del self.log[len(found):]
        self.queues = {}
        for kept in self.log:
            queue = self.queues.setdefault((kept.topic, kept.queue_id), [])
            if kept.queued:
                queue.append(kept)
        self.position = self.log[-1].end if self.log else 0
        if extra:
            assert extra[0].offset in (self.place(extra[0].size), self.place(self.segment_size))    # a batch rolls as a whole
            self.position = extra[0].offset
        for one, kept in zip(extra, begun, strict=False):
            assert replace(one, size=kept.size, offset=-1, queue_offset=-1, store_timestamp=-1) == kept
            self.add(one)
        self.safe = len(self.log)
        # The end-of-file record may have been written, and the record behind it not.
        assert store.max_log_offset in (self.position, -(-self.position // self.segment_size) * self.segment_size)
        self.position = store.max_log_offset

    # ---- comparing

    def check(self, store: MessageStore) -> None:
        """Everything that can be asked, after everything was dispatched."""
        self.check_log(store)
        names = {name for name, queue in self.queues.items() if queue}
        assert store.topics() == sorted({topic for topic, _ in names})
        for topic in store.topics():
            assert store.queues(topic) == sorted(queue for name, queue in names if name == topic)
        for (topic, queue_id), queue in self.queues.items():
            assert store.max_offset(topic, queue_id) == len(queue) == store.total(topic, queue_id)
            found = list(store.scan(topic, queue_id))
            assert len(found) == len(queue) and all(map(same, found, queue))
            if queue:
                assert store.min_offset(topic, queue_id) == 0
                assert store.earliest_time(topic, queue_id) == queue[0].store_timestamp
        for topic in {k.topic for k in self.log}:
            for key in {key for k in self.log if k.topic == topic for key in k.indexed}:
                self.check_key(store, topic, key)

    def check_log(self, store: MessageStore) -> None:
        """The raw log: the messages in order, and nothing but end-of-file records between them."""
        at, found = 0, []
        for kind, offset, size, message in store.log_records():
            assert offset == at
            at = offset + size
            if kind == "blank":
                assert at % self.segment_size == 0
            else:
                found.append(message)
        assert len(found) == len(self.log) and all(map(same, found, self.log))
        assert at == store.max_log_offset == self.position

    def check_get(self, store: MessageStore, topic: str, queue_id: int, offset: int, max_count: int,
                  tags: Iterable[str]) -> None:
        wanted = set(tags)
        queue = self.queues.get((topic, queue_id), [])
        result = store.get(topic, queue_id, offset, max_count, " || ".join(sorted(wanted)) or None)
        assert result.max_offset == len(queue) and result.unreadable == 0
        if not queue:
            assert (result.status, result.next_offset) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0)
        elif offset < 0:
            assert (result.status, result.next_offset) == (GetStatus.OFFSET_TOO_SMALL, 0)
        elif offset >= len(queue):
            status = GetStatus.OFFSET_OVERFLOW_ONE if offset == len(queue) else GetStatus.OFFSET_OVERFLOW_BADLY
            assert (result.status, result.next_offset) == (status, len(queue))
        else:
            assert offset < result.next_offset <= len(queue)
            expected = [k for k in queue[offset:result.next_offset] if not wanted or k.tags in wanted]
            assert len(result) == len(expected) <= max_count and all(map(same, result, expected))
            assert result.status is (GetStatus.FOUND if expected else GetStatus.NO_MATCHED_MESSAGE)

    def check_key(self, store: MessageStore, topic: str, key: str) -> None:
        """The newest 64 entries with this hash; a kill may leave the last record's keys in the index twice."""
        code = collide(topic, key)
        entries = [k for k in self.log if k.topic == topic for other in k.indexed if collide(topic, other) == code]
        found = store.query_key(topic, key, max_count=64)
        offsets = [m.offset for m in found]
        assert offsets == sorted(offsets)
        by_offset = {k.offset: k for k in entries if key in k.indexed}
        assert all(m.offset in by_offset and same(m, by_offset[m.offset]) for m in found)
        if len(entries) <= 32:
            assert sorted(set(offsets)) == sorted(by_offset)
        else:
            assert not offsets or set(offsets) == {o for o in by_offset if o >= offsets[0]}

    def check_time(self, store: MessageStore, topic: str, queue_id: int, timestamp: int) -> None:
        times = [k.store_timestamp for k in self.queues.get((topic, queue_id), [])]
        lower = store.offset_by_time(topic, queue_id, timestamp, boundary="lower")
        upper = store.offset_by_time(topic, queue_id, timestamp, boundary="upper")
        assert lower == bisect.bisect_left(times, timestamp)
        assert upper == max(bisect.bisect_right(times, timestamp) - 1, 0)
        assert 0 <= store.offset_by_time(topic, queue_id, timestamp, boundary="nearest") <= len(times)

    def check_scan(self, store: MessageStore, topic: str, queue_id: int, begin: int, end: int) -> None:
        def between(kept: Kept) -> bool:
            return begin <= kept.store_timestamp <= end

        for found, expected in (
                (store.scan(begin_time=begin, end_time=end), filter(between, self.log)),
                (store.scan(topic, begin_time=begin, end_time=end), (k for k in self.log if k.topic == topic and between(k))),
                (store.scan(topic, queue_id, begin_time=begin, end_time=end),
                 filter(between, self.queues.get((topic, queue_id), [])))):
            assert [m.offset for m in found] == [k.offset for k in expected]
