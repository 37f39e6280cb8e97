"""Reading the files of one queue of a compaction topic. Contract in _segments.pxd.

Files are mapped read-only, and every position and size in them is checked before it is followed.
"""
import os

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy

from rmq_store.access.reader._look cimport StoreLook
from rmq_store.access.reader._message cimport lease_new, message_new
from rmq_store.base.io._io cimport IoTable
from rmq_store.base.io._sync cimport rmq_load, rmq_publish
from rmq_store.base.segment._descriptors cimport log_file_drop_fd
from rmq_store.base.segment._file cimport (FileRow, LogFile, log_file_hold, log_file_lost, log_file_map, log_file_open,
                                           log_file_release, row_free, row_new)
from rmq_store.codec._record cimport (RECORD_OK, PropertyView, RecordView, body_crc32, properties_scan, record_of_queue,
                                      record_parse, rmq_get16, rmq_get32, rmq_get64, rmq_put16, rmq_put32, rmq_put64)
from rmq_store.codec._text cimport Keys, java_hash, key_next, keys_of

from rmq_store import errors

cdef enum:
    HITS_MAX = 1024             # of one call
    SEARCH_BYTES = 16 << 20     # between two looks for signals


cdef void entry_write(unsigned char *entry, const RecordView *v, int64_t place) noexcept nogil:
    cdef PropertyView p
    properties_scan(v.properties, v.properties_size, &p)
    rmq_put64(entry, place)
    rmq_put32(entry + ENTRY_AT_SIZE, v.size)
    rmq_put64(entry + ENTRY_AT_TAGS_CODE, 0 if p.tags == NULL else java_hash(p.tags, p.tags_size))
    rmq_put64(entry + ENTRY_AT_STORE_TIME, v.store_timestamp)
    rmq_put64(entry + ENTRY_AT_QUEUE_OFFSET, v.queue_offset)
    rmq_put16(entry + ENTRY_AT_COUNT, 1)
    rmq_put32(entry + ENTRY_AT_COMPACTED, -1)
    rmq_put32(entry + ENTRY_AT_RESERVED, 0)


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
        cdef FileRow *row
        cdef LogFile *f = log_file_open(self.io.table, place, start, size, False, &error)
        if f != NULL:
            row = self.log_row if log else self.entry_row
            error = log_file_map(row, f)
            if error >= 0:
                log_file_drop_fd(row, f)
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

    def rank(self, offset):
        cdef int64_t i, pair = self.pair_count, index = 0
        self.find(offset, &pair, &index)
        for i in range(pair):
            index += rmq_load(&self.pairs[i].count)
        return index

    def entry(self, rank):
        cdef int64_t i, at = rank, count
        for i in range(self.pair_count):
            count = rmq_load(&self.pairs[i].count)
            if at < count:
                return (self.offset_at(i, at),
                        rmq_get64(self.pairs[i].entries.map + at * ENTRY_SIZE + ENTRY_AT_STORE_TIME))
            at -= count
        raise IndexError(rank)

    def total(self):
        cdef int64_t i, total = 0
        for i in range(self.pair_count):
            total += rmq_load(&self.pairs[i].count)
        return total

    # ---- reading

    cdef int64_t _collect(self, const char *topic, int32_t topic_size, int32_t queue_id, int64_t *at, int64_t limit, Hit *hits,
                          int64_t most, int64_t left, int64_t *unreadable) noexcept nogil:
        cdef int64_t pair = 0, index = 0, n = 0
        cdef LogFile *before = NULL
        cdef RecordView *v
        if self.find(at[0], &pair, &index) < 0:
            at[0] = limit
            return 0
        while n < most:
            if index >= rmq_load(&self.pairs[pair].count):
                pair, index = pair + 1, 0
                if pair == self.pair_count:
                    at[0] = limit
                    return n
                continue
            if self.offset_at(pair, index) >= limit:
                at[0] = limit
                return n
            v = &hits[n].view
            if self.record(pair, index, v) < 0 or not record_of_queue(v, topic, topic_size, queue_id):
                unreadable[0] += 1
            elif n > 0 and v.size > left:
                return n
            else:
                hits[n].file, hits[n].held = self.pairs[pair].log, self.pairs[pair].log != before
                if hits[n].held:
                    before = hits[n].file
                    log_file_hold(before)
                left -= v.size
                n += 1
            at[0] = self.offset_at(pair, index) + 1
            index += 1
        return n

    cdef list _messages(self, StoreLook store, Hit *hits, int64_t count):
        cdef int64_t i
        cdef object lease = None
        found = []
        for i in range(count):
            if hits[i].held:
                lease = lease_new(hits[i].file, store.lease_count)
            found.append(message_new(lease, &hits[i].view))
        return found

    def read(self, StoreLook store not None, topic, queue_id, offset, limit, count_max, bytes_max):
        cdef bytes name = topic.encode("utf-8", "surrogatepass")
        cdef const char *text = name
        cdef int32_t size = <int32_t> len(name), queue = queue_id
        cdef int64_t at = offset, below = limit, left = bytes_max, most = min(count_max, HITS_MAX), unreadable = 0, n
        cdef Hit *hits = <Hit *> malloc(max(most, 1) * sizeof(Hit))
        if hits == NULL:
            raise MemoryError("compaction log")
        try:
            with nogil:
                n = self._collect(text, size, queue, &at, below, hits, most, left, &unreadable)
            return self._messages(store, hits, n), at, unreadable
        finally:
            free(hits)

    def raw(self, pair, index):
        cdef RecordView v
        cdef int64_t of = pair, at = index
        if self.record(of, at, &v) < 0:
            return None
        return PyBytes_FromStringAndSize(<const char *> v.start, v.size)

    cdef bint _carries(self, const RecordView *v, const char *key, int32_t size) noexcept nogil:
        cdef PropertyView p
        cdef Keys keys
        properties_scan(v.properties, v.properties_size, &p)
        keys = keys_of(p.uniq_key, p.uniq_key_size, p.keys, p.keys_size)
        while key_next(&keys):
            if keys.size == size and memcmp(keys.key, key, size) == 0:
                return True
        return False

    def search(self, StoreLook store not None, topic, queue_id, key, begin_time, end_time, limit, count_max):
        cdef bytes name = topic.encode("utf-8", "surrogatepass"), wanted = key.encode("utf-8", "surrogatepass")
        cdef const char *text = name
        cdef const char *sought = wanted
        cdef int32_t size = <int32_t> len(name), sought_size = <int32_t> len(wanted), queue = queue_id
        cdef int64_t begin = begin_time, end = end_time, below = limit, most = min(count_max, HITS_MAX)
        cdef int64_t pair = self.pair_count - 1, index = 0, n = 0, left, when
        cdef Hit *hits = <Hit *> malloc(max(most, 1) * sizeof(Hit))
        if hits == NULL:
            raise MemoryError("compaction log")
        try:
            if pair >= 0:
                index = rmq_load(&self.pairs[pair].count)
            while pair >= 0 and n < most:
                left = SEARCH_BYTES
                with nogil:
                    while n < most and left > 0:
                        while index == 0:
                            pair -= 1
                            if pair < 0:
                                break
                            index = rmq_load(&self.pairs[pair].count)
                        if pair < 0:
                            break
                        index -= 1
                        left -= ENTRY_SIZE
                        when = rmq_get64(self.pairs[pair].entries.map + index * ENTRY_SIZE + ENTRY_AT_STORE_TIME)
                        if self.offset_at(pair, index) >= below or not begin <= when <= end:
                            continue
                        if (self.record(pair, index, &hits[n].view) < 0
                                or not record_of_queue(&hits[n].view, text, size, queue)):
                            continue
                        left -= hits[n].view.size
                        if self._carries(&hits[n].view, sought, sought_size):
                            hits[n].file, hits[n].held = self.pairs[pair].log, True
                            n += 1
                PyErr_CheckSignals()
            for left in range(n):
                log_file_hold(hits[left].file)
            return self._messages(store, hits, n)
        finally:
            free(hits)

    # ---- damage

    def rebuilt(self, i, slots, topic, queue_id):
        cdef bytes name = topic.encode("utf-8", "surrogatepass")
        cdef const char *text = name
        cdef int32_t size = <int32_t> len(name), queue = queue_id
        cdef int64_t of = i, count = slots, j, at = 0, last = -1, marker
        cdef LogFile *log = self.pairs[of].log
        cdef const unsigned char *old = self.pairs[of].entries.map
        cdef unsigned char *made
        cdef RecordView v
        cdef bint whole = True
        if count < 1 or count * ENTRY_SIZE > self.entry_size:
            return None
        marker = ENTRY_SIZE if rmq_get64(old + (count - 1) * ENTRY_SIZE) == -1 else 0
        count -= marker // ENTRY_SIZE
        for j in range(of - 1, -1, -1):
            if self.pairs[j].count > 0:
                last = self.offset_at(j, self.pairs[j].count - 1)
                break
        found = PyBytes_FromStringAndSize(NULL, count * ENTRY_SIZE + marker)
        made = <unsigned char *> PyBytes_AS_STRING(found)
        with nogil:
            memcpy(made + count * ENTRY_SIZE, old + count * ENTRY_SIZE, marker)
            for j in range(count):
                if (record_parse(log.map + at, log.size - at, &v) != RECORD_OK or v.physical_offset != log.start + at
                        or v.queue_offset <= last or not record_of_queue(&v, text, size, queue)
                        or body_crc32(v.body, v.body_size) != v.body_crc):
                    whole = False
                    break
                entry_write(made + j * ENTRY_SIZE, &v, log.start + at)
                at, last = at + v.size, v.queue_offset
            j = rmq_load(&self.pairs[of].count)
            whole = (whole and j <= count and memcmp(made, old, j * ENTRY_SIZE) == 0
                     and not log_file_lost(log, log.start, at))
        return found if whole else None

    def check(self, topic, queue_id):
        cdef RecordView v
        cdef bytes name = topic.encode("utf-8", "surrogatepass")
        cdef int64_t i, j
        cdef int rc
        found = []
        for i in range(self.pair_count):
            for j in range(rmq_load(&self.pairs[i].count)):
                rc = self.record(i, j, &v)
                if (rc < 0 or not record_of_queue(&v, name, <int32_t> len(name), <int32_t> queue_id)
                        or body_crc32(v.body, v.body_size) != v.body_crc):
                    found.append((self.pairs[i].log.start, self.offset_at(i, j)))
        return found
