"""Reading the files of one queue of a compaction topic. Contract in _segments.pxd.

Files are mapped read-only, and every position and size in them is checked before it is followed.
"""
import os

cimport cython
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, realloc

from rmq_store.access.reader._look cimport StoreLook
from rmq_store.access.reader._message cimport lease_new, message_new
from rmq_store.base.io._io cimport IoTable
from rmq_store.base.io._sync cimport rmq_load, rmq_publish
from rmq_store.base.segment._file cimport (LogFile, log_file_hold, log_file_lost, log_file_map, log_file_open, log_file_release,
                                           row_free, row_new)
from rmq_store.codec._record cimport RECORD_OK, RecordView, record_of_queue, record_parse, rmq_get16, rmq_get32, rmq_get64

from rmq_store import errors


cdef bint _is_entry(const unsigned char *at) noexcept nogil:
    # As SparseConsumeQueue.recover decides it.
    return (rmq_get64(at) >= 0 and rmq_get32(at + ENTRY_AT_SIZE) > 0 and rmq_get64(at + ENTRY_AT_QUEUE_OFFSET) >= 0
            and rmq_get16(at + ENTRY_AT_COUNT) > 0)


cdef int64_t _count(const LogFile *log, const LogFile *entries, int64_t begin, int64_t before) noexcept nogil:
    # Entries from `begin` on that ascend, and lead into their log file. `before`: the queue offset of the entry before.
    cdef int64_t i, at, end = log.start, last = before
    cdef const unsigned char *entry
    for i in range(begin, entries.size // ENTRY_SIZE):
        entry = entries.map + i * ENTRY_SIZE
        at = rmq_get64(entry)
        if (not _is_entry(entry) or at < end or at > log.start + log.size - rmq_get32(entry + ENTRY_AT_SIZE)
                or rmq_get64(entry + ENTRY_AT_QUEUE_OFFSET) <= last):
            return i
        end, last = at + rmq_get32(entry + ENTRY_AT_SIZE), rmq_get64(entry + ENTRY_AT_QUEUE_OFFSET)
    return entries.size // ENTRY_SIZE


@cython.no_gc_clear
cdef class Segments:
    """The pairs of files of one queue, oldest first."""

    def __init__(self, IoTable io not None, log_size, entry_size, guarded):
        self.io, self.log_size, self.entry_size = io, log_size, entry_size
        self.log_row = row_new(io.table, b"", log_size, False)
        self.entry_row = row_new(io.table, b"", entry_size, False)
        if self.log_row == NULL or self.entry_row == NULL:
            raise MemoryError("compaction log")
        self.log_row.guarded = self.entry_row.guarded = guarded

    def __dealloc__(self):
        cdef int64_t i
        for i in range(self.pair_count):
            log_file_release(self.pairs[i].log)
            log_file_release(self.pairs[i].entries)
        free(self.pairs)
        row_free(self.log_row)
        row_free(self.entry_row)

    def add(self, log_dir, entry_dir, start):
        cdef Pair *more = <Pair *> realloc(self.pairs, (self.pair_count + 1) * sizeof(Pair))
        cdef Pair *pair
        cdef int64_t before = -1
        if more == NULL:
            raise MemoryError("compaction log")
        self.pairs = more
        pair = &self.pairs[self.pair_count]
        pair.entries = NULL
        pair.log = self._open(log_dir, start, self.log_size, True)
        try:
            pair.entries = self._open(entry_dir, start, self.entry_size, False)
        except BaseException:
            log_file_release(pair.log)
            raise
        self.pair_count += 1
        for i in range(self.pair_count - 2, -1, -1):
            if self.pairs[i].count > 0:
                before = self.offset_at(i, self.pairs[i].count - 1)
                break
        with nogil:
            pair.count = _count(pair.log, pair.entries, 0, before)

    cdef LogFile *_open(self, directory, start, int64_t size, bint log) except NULL:
        cdef int error = 0
        cdef bytes place = os.fsencode(directory)
        cdef LogFile *f = log_file_open(self.io.table, place, start, size, False, &error)
        if f != NULL:
            error = log_file_map(self.log_row if log else self.entry_row, f)
            if error >= 0:
                return f
            log_file_release(f)
        path = os.path.join(directory, f"{start:020d}")
        if error == -22:
            raise errors.CorruptionError(path, None, f"a file of {size} bytes, as the others of its queue",
                                         f"{os.path.getsize(path)} bytes")
        raise OSError(-error, os.strerror(-error), path)

    # ---- places

    cdef int64_t offset_at(self, int64_t pair, int64_t index) noexcept nogil:
        return rmq_get64(self.pairs[pair].entries.map + index * ENTRY_SIZE + ENTRY_AT_QUEUE_OFFSET)

    cdef int record(self, int64_t pair, int64_t index, RecordView *v) noexcept nogil:
        cdef LogFile *f = self.pairs[pair].log
        cdef const unsigned char *entry = self.pairs[pair].entries.map + index * ENTRY_SIZE
        cdef int64_t at = rmq_get64(entry) - f.start
        cdef int64_t size = rmq_get32(entry + ENTRY_AT_SIZE)
        if (at < 0 or size <= 0 or at > f.size - size or record_parse(f.map + at, size, v) != RECORD_OK or v.size != size
                or v.queue_offset != rmq_get64(entry + ENTRY_AT_QUEUE_OFFSET) or log_file_lost(f, f.start + at, size)):
            return -1
        return 0

    cdef int find(self, int64_t offset, int64_t *pair, int64_t *index) noexcept nogil:
        cdef int64_t i, low, high, middle
        for i in range(self.pair_count):
            high = rmq_load(&self.pairs[i].count)
            if high == 0 or self.offset_at(i, high - 1) < offset:
                continue
            low = 0
            while low < high:
                middle = (low + high) // 2
                if self.offset_at(i, middle) < offset:
                    low = middle + 1
                else:
                    high = middle
            pair[0], index[0] = i, low
            return 0
        return -1

    def grown(self, count):
        rmq_publish(&self.pairs[self.pair_count - 1].count, count)

    def look(self):
        cdef int64_t count, last = -1
        cdef Pair *pair
        if self.pair_count == 0:
            return
        pair = &self.pairs[self.pair_count - 1]
        count = rmq_load(&pair.count)
        if count > 0:
            last = self.offset_at(self.pair_count - 1, count - 1)
        with nogil:
            count = _count(pair.log, pair.entries, count, last)
        rmq_publish(&pair.count, count)

    def pair(self, i):
        cdef int64_t count = rmq_load(&self.pairs[<int64_t> i].count), end = 0
        cdef const unsigned char *last
        cdef bint closed = count == self.entry_size // ENTRY_SIZE
        if not closed:
            closed = rmq_get64(self.pairs[<int64_t> i].entries.map + count * ENTRY_SIZE) == -1
        if count > 0:
            last = self.pairs[<int64_t> i].entries.map + (count - 1) * ENTRY_SIZE
            end = rmq_get64(last) + rmq_get32(last + ENTRY_AT_SIZE) - self.pairs[<int64_t> i].log.start
        return self.pairs[<int64_t> i].log.start, count, end, closed

    def bounds(self):
        cdef int64_t i, count, first = -1, last = -1
        for i in range(self.pair_count):
            count = rmq_load(&self.pairs[i].count)
            if count > 0:
                first = self.offset_at(i, 0) if first < 0 else first
                last = self.offset_at(i, count - 1)
        return first, last

    def last_of(self, i):
        cdef int64_t count = rmq_load(&self.pairs[<int64_t> i].count)
        return self.offset_at(i, count - 1) if count > 0 else -1

    def place(self, offset):
        cdef int64_t pair = 0, index = 0
        return None if self.find(offset, &pair, &index) < 0 else (pair, index)

    def total(self):
        cdef int64_t i, total = 0
        for i in range(self.pair_count):
            total += rmq_load(&self.pairs[i].count)
        return total

    # ---- reading

    def read(self, StoreLook store not None, topic, queue_id, offset, limit, count_max, bytes_max):
        cdef RecordView v
        cdef LogFile *f
        cdef bytes name = topic.encode("utf-8", "surrogatepass")
        cdef int64_t pair = 0, index = 0, at = offset, below = limit, left = bytes_max, most = count_max
        cdef object lease = None
        cdef LogFile *leased = NULL
        found, unreadable = [], 0
        if self.find(at, &pair, &index) < 0:
            return found, limit, unreadable
        while len(found) < most:
            if index >= rmq_load(&self.pairs[pair].count):
                pair, index = pair + 1, 0
                if pair == self.pair_count:
                    return found, limit, unreadable
                continue
            if self.offset_at(pair, index) >= below:
                return found, limit, unreadable
            if self.record(pair, index, &v) < 0 or not record_of_queue(&v, name, <int32_t> len(name), <int32_t> queue_id):
                unreadable += 1
            elif found and v.size > left:
                return found, at, unreadable
            else:
                f = self.pairs[pair].log
                if f != leased:
                    log_file_hold(f)
                    lease, leased = lease_new(f, store.lease_count), f
                found.append(message_new(lease, &v))
                left -= v.size
            at = self.offset_at(pair, index) + 1
            index += 1
        return found, min(at, below), unreadable

    def check(self, topic, queue_id):
        cdef RecordView v
        cdef bytes name = topic.encode("utf-8", "surrogatepass")
        cdef int64_t i, j
        cdef int rc
        found = []
        for i in range(self.pair_count):
            for j in range(rmq_load(&self.pairs[i].count)):
                rc = self.record(i, j, &v)
                if rc < 0 or not record_of_queue(&v, name, <int32_t> len(name), <int32_t> queue_id):
                    found.append((self.pairs[i].log.start, self.offset_at(i, j)))
        return found
