"""Writing compaction logs: records of the queue behind the last pair, and the compaction of the pairs before it.

One thread a queue (log.py has the lock), without the GIL where bytes move. Bytes are those of RocketMQ 5.3.3 (kv.CompactionLog,
CompactionAppendMessageCallback): a record is copied, and its physical offset becomes its place in this log. What is not yet
full of a file is zeros.
"""
import os

cimport cython
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from rmq_store.access.reader._checked cimport utf8
from rmq_store.access.reader._get cimport Found, GetRequest, StoreGet
from rmq_store.base.io._io cimport IoTable, rmq_io, rmq_pwrite_all
from rmq_store.base.io._sync cimport rmq_load
from rmq_store.base.segment._file cimport log_file_release
from rmq_store.codec._layout cimport MAGIC_BLANK, RECORD_AT_MAGIC, RECORD_AT_PHYSICAL_OFFSET, RECORD_AT_SIZE
from rmq_store.codec._record cimport PropertyView, RecordView, properties_scan, rmq_put32, rmq_put64
from rmq_store.services.compaction._places cimport is_blank
from rmq_store.services.compaction._segments cimport ENTRY_AT_COMPACTED, ENTRY_SIZE, Segments, entry_write

from rmq_store import errors

cdef enum:
    ROOM = 4 << 20              # of records that are gathered for one write
    ENTRIES_ROOM = 1 << 14
    AT_ONCE = 256
    BYTES_AT_ONCE = 1 << 20
    BLANK_ROOM = 8              # size and magic code of the record that fills a file
    FULL = 1                    # the next record needs another pair


@cython.final
@cython.no_gc_clear
cdef class PairWriter:
    """Appends to one pair of files. Nothing is readable, or counts after a crash, before `write`."""

    cdef IoTable io
    cdef int log_fd, entry_fd
    cdef readonly int64_t start, log_size, entry_size
    cdef readonly int64_t count, end        # entries, bytes of records; with what is gathered
    cdef int64_t wrote_count, wrote_end
    cdef unsigned char *records
    cdef unsigned char *entries
    cdef int64_t room, entry_room
    cdef readonly object path
    cdef bint ordered                       # records are on the device before their entries are written
    cdef readonly bint sync_failed

    def __init__(self, IoTable io not None, path, log_fd, entry_fd, start, log_size, entry_size, count, end, ordered):
        self.io, self.path, self.log_fd, self.entry_fd, self.ordered = io, path, log_fd, entry_fd, ordered
        self.start, self.log_size, self.entry_size = start, log_size, entry_size
        self.count, self.end = count, end
        self.wrote_count, self.wrote_end = count, end
        self.room = min(<int64_t> ROOM, self.log_size)
        self.entry_room = min(self.entry_size, <int64_t> (ENTRIES_ROOM * ENTRY_SIZE))
        self.records = <unsigned char *> malloc(self.room)
        self.entries = <unsigned char *> malloc(self.entry_room)
        if self.records == NULL or self.entries == NULL:
            raise MemoryError("compaction log")

    def __dealloc__(self):
        free(self.records)
        free(self.entries)

    cdef int put(self, const RecordView *v) noexcept nogil:
        # 0, FULL, or -errno.
        cdef int64_t at
        cdef int rc
        if (self.count + 1) * ENTRY_SIZE >= self.entry_size or v.size + BLANK_ROOM > self.log_size - self.end:
            return FULL
        if (self.end + v.size - self.wrote_end > self.room
                or (self.count + 1 - self.wrote_count) * ENTRY_SIZE > self.entry_room):
            rc = self._write(self.ordered)
            if rc < 0:
                return rc
        if v.size > self.room:
            return self._put_large(v)
        at = self.end - self.wrote_end
        memcpy(self.records + at, v.start, v.size)
        rmq_put64(self.records + at + RECORD_AT_PHYSICAL_OFFSET, self.start + self.end)
        self._note(v)
        return 0

    cdef int _put_large(self, const RecordView *v) noexcept nogil:
        # Nothing is gathered. The record as it lies, then its place.
        cdef unsigned char[8] place
        cdef int rc = rmq_pwrite_all(self.io.table, self.log_fd, v.start, v.size, self.end)
        rmq_put64(place, self.start + self.end)
        if rc >= 0:
            rc = rmq_pwrite_all(self.io.table, self.log_fd, place, 8, self.end + RECORD_AT_PHYSICAL_OFFSET)
        if rc < 0:
            return rc
        self._note(v)
        self.wrote_end = self.end
        return 0

    cdef void _note(self, const RecordView *v) noexcept nogil:
        entry_write(self.entries + (self.count - self.wrote_count) * ENTRY_SIZE, v, self.start + self.end)
        self.end += v.size
        self.count += 1

    cdef int _write(self, bint sync) noexcept nogil:
        # Records are in the file, and with `sync` on the device, before their entries are: an entry never leads to nothing.
        cdef const rmq_io *io = self.io.table
        cdef int rc = 0
        if self.count == self.wrote_count:
            return 0
        if self.end > self.wrote_end:
            rc = rmq_pwrite_all(io, self.log_fd, self.records, self.end - self.wrote_end, self.wrote_end)
        if rc >= 0 and sync:
            rc = io.fdatasync(io.ctx, self.log_fd)
            self.sync_failed = rc < 0
        if rc >= 0:
            rc = rmq_pwrite_all(io, self.entry_fd, self.entries, (self.count - self.wrote_count) * ENTRY_SIZE,
                                self.wrote_count * ENTRY_SIZE)
        if rc >= 0:
            self.wrote_count, self.wrote_end = self.count, self.end
        return rc

    def filled(self):
        """True once half of the memory for one write is used."""
        return (self.end - self.wrote_end) * 2 > self.room or (self.count - self.wrote_count) * ENTRY_SIZE * 2 > self.entry_room

    def write(self):
        """Writes what is gathered: the records durably, then their entries. Returns how many entries are in the file."""
        cdef int rc
        with nogil:
            rc = self._write(True)
        self._raise(rc)
        return self.count

    def close_pair(self):
        """The pair is full: its blank record and its end marker, where RocketMQ writes them. Durable."""
        cdef unsigned char[ENTRY_SIZE] marker
        cdef unsigned char[BLANK_ROOM] blank
        cdef int rc
        self.write()
        memset(marker, 0, ENTRY_SIZE)
        rmq_put64(marker, -1)
        rmq_put32(marker + ENTRY_AT_COMPACTED, -1)
        rmq_put32(blank + RECORD_AT_SIZE, <int32_t> (self.log_size - self.end))
        rmq_put32(blank + RECORD_AT_MAGIC, MAGIC_BLANK)
        with nogil:
            rc = 0
            if self.log_size - self.end >= BLANK_ROOM:
                rc = rmq_pwrite_all(self.io.table, self.log_fd, blank, BLANK_ROOM, self.end)
            if rc >= 0 and (self.count + 1) * ENTRY_SIZE <= self.entry_size:
                rc = rmq_pwrite_all(self.io.table, self.entry_fd, marker, ENTRY_SIZE, self.count * ENTRY_SIZE)
        self._raise(rc)
        self.sync()

    def sync(self):
        """Makes the pair durable."""
        cdef const rmq_io *io = self.io.table
        cdef int rc
        with nogil:
            rc = io.fdatasync(io.ctx, self.log_fd)
            if rc >= 0:
                rc = io.fdatasync(io.ctx, self.entry_fd)
        self.sync_failed = rc < 0
        self._raise(rc)

    cdef int _raise(self, int rc) except -1:
        if rc < 0:
            raise OSError(-rc, os.strerror(-rc), self.path)
        return 0


def feed(StoreGet store not None, PairWriter writer not None, topic, queue_id, begin, limit):
    """Gathers messages of [begin, limit) of the queue that have a key and are on the device. Returns the queue offset to
    continue at, and why it stopped: "more", "end", or "full" (the record there needs another pair)."""
    cdef GetRequest r
    cdef bytes name = utf8(topic, "topic")
    cdef int64_t i, flushed, at = begin, last = limit
    cdef int rc = 0
    cdef PropertyView p
    cdef RecordView *v
    r.topic, r.topic_size = name, <int32_t> len(name)
    r.queue_id, r.offset = queue_id, begin
    r.codes, r.codes_count, r.filter, r.bits, r.slave_rules, r.unwraps = NULL, 0, NULL, NULL, False, False
    r.bytes_max = r.bytes_max_memory = r.bytes_max_disk = BYTES_AT_ONCE
    r.count_max = r.count_max_memory = r.count_max_disk = AT_ONCE
    r.memory_bytes = INT64_MAX
    r.scan_bytes_max = 0
    store._enter()
    r.found = <Found *> malloc(AT_ONCE * sizeof(Found))
    if r.found == NULL:
        raise MemoryError("compaction log")
    store.calls += 1
    with nogil:
        flushed = rmq_load(&store.log.flushed)
        store._get(&r)
        for i in range(r.found_count):
            v = &r.found[i].view
            if v.queue_offset >= last or v.physical_offset + v.size > flushed:
                rc = FULL + 1
                break
            properties_scan(v.properties, v.properties_size, &p)
            if p.keys != NULL and not is_blank(p.keys, p.keys_size):
                rc = writer.put(v)
                if rc != 0:
                    break
            at = v.queue_offset + 1
        for i in range(r.found_count):
            if r.found[i].held:
                log_file_release(r.found[i].file)
    store.calls -= 1
    free(r.found)
    if r.error < 0 or rc < 0:
        rc = rc if rc < 0 else r.error
        raise OSError(-rc, os.strerror(-rc), writer.path)
    if rc == FULL:
        return at, "full"
    if rc != 0:
        return at, "end"
    at = min(max(r.next_offset, at), last)
    return at, "more" if at > <int64_t> begin else "end"


def agrees(StoreGet store not None, Segments segments not None, topic, queue_id, pair, index):
    """Whether the record of an entry is the one that the queue has at its offset. True also where one of the two cannot be
    read. Raises OSError, StoreClosed."""
    cdef GetRequest r
    cdef Found found
    cdef RecordView v
    cdef bytes name = utf8(topic, "topic")
    cdef int64_t of = pair, at = index
    cdef bint same = True
    r.topic, r.topic_size = name, <int32_t> len(name)
    r.queue_id = queue_id
    r.codes, r.codes_count, r.filter, r.bits, r.slave_rules, r.unwraps = NULL, 0, NULL, NULL, False, False
    r.bytes_max = r.bytes_max_memory = r.bytes_max_disk = BYTES_AT_ONCE
    r.count_max = r.count_max_memory = r.count_max_disk = 1
    r.memory_bytes = INT64_MAX
    r.scan_bytes_max = 0
    r.found = &found
    r.offset = segments.offset_at(of, at)
    store._enter()
    store.calls += 1
    with nogil:
        store._get(&r)
        if r.found_count > 0:
            if found.view.queue_offset == r.offset and segments.record(of, at, &v) == 0:
                # A record is copied, and its physical offset becomes its place.
                same = (v.size == found.view.size and memcmp(v.start, found.view.start, RECORD_AT_PHYSICAL_OFFSET) == 0
                        and memcmp(v.start + RECORD_AT_PHYSICAL_OFFSET + 8, found.view.start + RECORD_AT_PHYSICAL_OFFSET + 8,
                                   v.size - RECORD_AT_PHYSICAL_OFFSET - 8) == 0)
            if found.held:
                log_file_release(found.file)
    store.calls -= 1
    if r.error < 0:
        raise OSError(-r.error, os.strerror(-r.error), f"{store.path}: {topic}, queue {queue_id}")
    return same


# ---- compaction

cdef struct Slot:
    uint64_t hash
    const unsigned char *key        # in a mapped record; NULL: free
    int32_t size
    int64_t offset                  # the newest queue offset of the key


cdef inline uint64_t _hash(const char *key, int32_t size, uint64_t seed) noexcept nogil:
    cdef uint64_t h = seed
    cdef int32_t i
    for i in range(size):
        h = (h ^ <unsigned char> key[i]) * <uint64_t> 0x100000001B3
    return h ^ (h >> 29)


@cython.final
@cython.no_gc_clear
cdef class Compaction:
    """The compaction of the first `pairs` pairs of a queue: which offset is the newest of each key, then a copy of what stays.

    RocketMQ's rule: a message stays if its offset is beyond those that the map was made of, or if it has a body and no message
    of its key in the map is newer. The map compares keys, not their hashes. If its memory ends, it ends at that message; what
    is beyond stays until the next compaction.
    """

    cdef Segments segments
    cdef object path
    cdef int64_t pairs, pair, index, position
    cdef Slot *slots
    cdef uint64_t mask, seed
    cdef int64_t keys, keys_max
    cdef readonly int64_t last_offset       # RocketMQ's OffsetMap.lastOffset; -1: the map is empty
    cdef readonly int64_t kept, dropped, kept_bytes, dropped_bytes
    cdef bint damaged                       # the entry at `index` leads to no record

    def __init__(self, Segments segments not None, path, pairs, position, map_bytes):
        cdef int64_t count = 0, i
        cdef uint64_t room = 64
        self.segments, self.path = segments, path
        self.pairs, self.position, self.last_offset = pairs, position, -1
        for i in range(self.pairs):
            if segments.pairs[i].count > 0 and segments.offset_at(i, segments.pairs[i].count - 1) > self.position:
                count += segments.pairs[i].count
        while room < <uint64_t> count * 2 and room * 2 * sizeof(Slot) <= <uint64_t> map_bytes:
            room *= 2
        self.slots = <Slot *> calloc(room, sizeof(Slot))
        if self.slots == NULL:
            raise MemoryError("compaction map")
        self.mask, self.keys_max = room - 1, <int64_t> (room * 3 // 4)
        self.seed = int.from_bytes(os.urandom(8), "little")

    def __dealloc__(self):
        free(self.slots)

    cdef Slot *_slot(self, const char *key, int32_t size) noexcept nogil:
        # That of the key, or the free one where it belongs.
        cdef uint64_t h = _hash(key, size, self.seed)
        cdef uint64_t i = h & self.mask
        while self.slots[i].key != NULL and not (
                self.slots[i].hash == h and self.slots[i].size == size and memcmp(self.slots[i].key, key, size) == 0):
            i = (i + 1) & self.mask
        if self.slots[i].key == NULL:
            self.slots[i].hash, self.slots[i].size = h, size
        return &self.slots[i]

    cdef bint _next(self, RecordView *v, PropertyView *p) noexcept nogil:
        # The next record of the pairs. False: there is none, or it is damaged.
        while self.pair < self.pairs and self.index >= self.segments.pairs[self.pair].count:
            self.pair, self.index = self.pair + 1, 0
        if self.pair >= self.pairs:
            return False
        if self.segments.record(self.pair, self.index, v) < 0:
            self.damaged = True
            return False
        self.index += 1
        properties_scan(v.properties, v.properties_size, p)
        return True

    cdef int _refuse_damage(self) except -1:
        # Nothing is written over a log that has lost a value: what is left of it stays as it is.
        if self.damaged:
            raise errors.CorruptionError(
                self.path, self.segments.pairs[self.pair].log.start, "the record of the entry in the compaction log",
                f"something else at the entry of queue offset {self.segments.offset_at(self.pair, self.index)}")
        return 0

    def map_some(self, size):
        """Takes in about `size` bytes of records. False: all are taken in."""
        cdef RecordView v
        cdef PropertyView p
        cdef int64_t left = size
        cdef bint more = True
        cdef Slot *slot
        with nogil:
            while left > 0 and more:
                more = self._next(&v, &p)
                if not more:
                    break
                left -= v.size
                if p.keys == NULL or is_blank(p.keys, p.keys_size):
                    continue
                if v.queue_offset <= self.position:
                    if v.body_size > 0:
                        continue
                    # The compaction up to there would have left no such message: the position is that of another queue.
                    self.position, self.pair, self.index = -1, 0, 0
                    continue
                slot = self._slot(p.keys, p.keys_size)
                if slot.key == NULL:
                    if self.keys == self.keys_max:
                        more = False
                        break
                    self.keys += 1
                    slot.key = <const unsigned char *> p.keys
                slot.offset = self.last_offset = v.queue_offset
        self._refuse_damage()
        if not more:
            self.pair = self.index = 0
        return more

    def copy_some(self, PairWriter writer, size):
        """Copies what stays of about `size` bytes of records; None: only counts it. Returns "more", "end", or "full": it needs
        another pair."""
        cdef RecordView v
        cdef PropertyView p
        cdef int64_t left = size
        cdef bint more = True, full = False
        cdef int rc = 0
        with nogil:
            while left > 0:
                more = self._next(&v, &p)
                if not more:
                    break
                left -= v.size
                if not self._stays(&v, &p):
                    self.dropped += 1
                    self.dropped_bytes += v.size
                    continue
                rc = 0 if writer is None else writer.put(&v)
                if rc != 0:
                    self.index -= 1
                    full = rc == FULL
                    break
                self.kept += 1
                self.kept_bytes += v.size
        self._refuse_damage()
        if rc < 0:
            raise OSError(-rc, os.strerror(-rc), writer.path)
        return "full" if full else "more" if more else "end"

    cdef bint _stays(self, const RecordView *v, const PropertyView *p) noexcept nogil:
        cdef Slot *slot
        if v.queue_offset > self.last_offset:
            return True
        if p.keys == NULL or is_blank(p.keys, p.keys_size) or v.body_size == 0:
            return False
        slot = self._slot(p.keys, p.keys_size)
        return slot.key == NULL or v.queue_offset >= slot.offset
