"""Holding the parts of a store against each other: log to queues, queues to log, index to log, log to index.

Read-only, over maps and descriptors of its own, so that it works on stores that do not load. Each call looks at a bounded piece
without the GIL and returns notes; verification.py reads them. One thread; nothing a file says is believed unchecked.
"""
import os

cimport cython
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint32_t
from libc.stdlib cimport calloc, free, realloc

from rmq_store.base.io._io cimport IoTable
from rmq_store.base.segment._descriptors cimport log_file_drop_fd, log_file_next_data
from rmq_store.base.segment._file cimport (FileRow, LogFile, log_file_release, row_add_dir, row_find, row_free, row_new,
                                           row_open, row_push, row_start)
from rmq_store.codec._bad cimport BAD_BODY_CRC, BAD_NOT, Bad, crc_bad, field_bad
from rmq_store.codec._delay cimport delay_tags_code
from rmq_store.codec._layout cimport (BLANK_SIZE, FLAG_TRANSACTION, INDEX_AT_BEGIN_PHYSICAL, INDEX_AT_COUNT,
                                      INDEX_AT_END_PHYSICAL, INDEX_ENTRY_SIZE, INDEX_HEADER_SIZE, INDEX_SLOT_SIZE,
                                      RECORD_HEAD_SIZE, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, UNIT_SIZE)
from rmq_store.codec._light cimport Light, light_next, light_topic, lights_of
from rmq_store.codec._record cimport (RECORD_BLANK, RECORD_OK, PropertyView, RecordStatus, RecordView, properties_scan,
                                      record_parse, rmq_get32, rmq_get64, topic_fits)
from rmq_store.codec._text cimport Keys, key_hash, key_next, keys_of, topic_hash
from rmq_store.codec._unit cimport is_ext_address, unit_blank, unit_bytes, unit_code, unit_physical
from rmq_store.log.recovery._scan cimport scan_next_good
from rmq_store.queues.consumequeue._owner cimport QueueTableOwner
from rmq_store.queues.consumequeue._queue cimport Queue, queue_read, queue_read_ext, queues_find
from rmq_store.queues.index._file cimport (IndexFile, entry_hash, entry_physical, entry_previous, index_file_open,
                                           index_file_release)
from rmq_store.services.integrity._notes cimport (BODY_CRC, HOLE, INDEX_CHAIN, INDEX_HEADER, INDEX_MISSING, INDEX_SLOT,
                                                  INDEX_WRONG, NOTES_MAX, QUEUE_MISSING, QUEUE_OTHER, QUEUE_TAGS, QUEUE_WRONG,
                                                  RECORD_CRC, RECORD_HEADER, TAIL, Notes, note_in_place, note_keyed, note_last)

cdef enum:
    PIECE = 1 << 20
    UNITS = 64


@cython.final
@cython.no_gc_clear     # what __dealloc__ frees works on the I/O table
cdef class Checker:
    """The files of one store, opened for checking. Offsets are log offsets; errors are OSError with the path."""

    cdef IoTable io
    cdef FileRow *row
    cdef QueueTableOwner queues
    cdef IndexFile **index
    cdef int index_count
    cdef int64_t *delay_ms
    cdef int32_t delay_levels
    cdef Notes notes
    cdef int error
    cdef bint crc_property
    cdef bint light             # records are held against their light queues, too
    cdef int at_file            # where the walk over the log is in the index: file and entry
    cdef int32_t at_entry
    cdef readonly int64_t records
    cdef readonly int64_t units
    cdef readonly int64_t index_entries
    cdef readonly int64_t end           # behind the last good record met so far
    cdef readonly int64_t last_timestamp
    cdef readonly int64_t unindexed         # records with keys behind the index's last entry, and the first of them
    cdef readonly int64_t first_unindexed

    def __cinit__(self, IoTable io not None, commitlog_dirs not None, int64_t file_size, list delay_levels not None,
                  bint crc_property=False, bint light=False):
        cdef int i
        self.io = io
        self.crc_property = crc_property
        self.light = light
        self.row = row_new(io.table, os.fsencode(commitlog_dirs[0]), file_size, False)
        self.notes = Notes()
        self.delay_levels = <int32_t> len(delay_levels)
        self.delay_ms = <int64_t *> calloc(self.delay_levels + 1, sizeof(int64_t))
        if self.row == NULL or self.delay_ms == NULL or min(
                [row_add_dir(self.row, os.fsencode(directory)) for directory in commitlog_dirs[1:]], default=0) < 0:
            raise MemoryError("checker")
        for i in range(self.delay_levels):
            self.delay_ms[i] = delay_levels[i]
        self.at_entry = 1

    def __dealloc__(self):
        self.close()

    def close(self):
        """Unmaps and closes everything."""
        cdef int i
        for i in range(self.index_count):
            index_file_release(self.index[i])
        free(self.index)
        self.index, self.index_count = NULL, 0
        row_free(self.row)
        self.row = NULL
        free(self.delay_ms)
        self.delay_ms = NULL
        self.queues = None

    def add_file(self, int64_t start):
        """One commit-log file of the right size; ascending, without gaps."""
        cdef int error = 0
        cdef LogFile *f = row_open(self.row, start, &error)
        if f == NULL:
            raise OSError(-error, os.strerror(-error), f"{os.fsdecode(self.row.dir)}/{start:020d}")
        error = row_push(self.row, f)
        if error < 0:
            log_file_release(f)
            raise OSError(-error, "not the next file", f"{os.fsdecode(self.row.dir)}/{start:020d}")
        log_file_drop_fd(self.row, f)

    def use_queues(self, QueueTableOwner owner not None):
        """The queues, loaded readonly and recovered."""
        self.queues = owner

    def add_index(self, str directory not None, int64_t name, int32_t slots, int32_t entries_max):
        """One index file; ascending."""
        cdef IndexFile *f = NULL
        cdef IndexFile **more
        cdef int rc = index_file_open(self.io.table, os.fsencode(directory), name, slots, entries_max, False, &f)
        if rc < 0:
            raise OSError(-rc, os.strerror(-rc), f"{directory}/{name:017d}")
        more = <IndexFile **> realloc(self.index, (self.index_count + 1) * sizeof(IndexFile *))
        if more == NULL:
            index_file_release(f)
            raise MemoryError("index files")
        self.index = more
        self.index[self.index_count] = f
        self.index_count += 1

    cdef list _taken(self):
        found = self.notes.taken()
        if self.error < 0:
            error, self.error = self.error, 0
            raise OSError(-error, os.strerror(-error), os.fsdecode(self.row.dir))
        return found

    # ---- log to queues and index

    def start(self):
        """Offset of the first byte of the log, -1: no file."""
        return row_start(self.row)

    def log(self, int64_t begin, int64_t size):
        """Checks the records from `begin` on, about `size` bytes of them. Returns (where to continue, -1 at the end; notes)."""
        cdef int64_t next
        with nogil:
            next = self._log(begin, begin + size if begin <= INT64_MAX - size else INT64_MAX)
        return next, self._taken()

    cdef int64_t _log(self, int64_t at, int64_t stop) noexcept nogil:
        cdef LogFile *f = NULL
        cdef RecordView v
        cdef RecordStatus status
        cdef int64_t end, good
        while at < stop and self.notes.count < NOTES_MAX - 64 and self.error == 0:
            if f == NULL or at >= f.start + f.size:
                log_file_release(f)
                f = row_find(self.row, at, &self.error)
                if f == NULL:
                    return -1
            end = f.start + f.size
            if end - at < BLANK_SIZE:
                at = end
                continue
            status = record_parse(f.map + (at - f.start), end - at, &v)
            if status == RECORD_BLANK and v.size == end - at:
                at = end
                self.end = at
                continue
            if status == RECORD_OK and v.physical_offset == at:
                self.records += 1
                self._record(&v)
                at += v.size
                self.end = at
                continue
            good = self._next_good(f, at + 1, end)
            if good >= 0:
                self.notes.add(HOLE, at, good, 0, 0)
                at = good
            elif self._begins(end):
                self.notes.add(HOLE, at, end, 0, 0)
                at = end
            else:
                self._tail(f, at)
                at = -1
                break
        log_file_release(f)
        return at

    cdef int64_t _data(self, LogFile *f, int64_t at) noexcept nogil:
        # Log offset of the first byte at or beyond `at` that is no hole; f's end where there is none. Never all of a huge file
        # that holds nothing is read.
        cdef int64_t found = log_file_next_data(f, at - f.start) if at < f.start + f.size else f.size
        if found < 0:
            self.error = <int> found
            return f.start + f.size
        return f.start + (found if found < f.size else f.size)

    cdef int64_t _next_good(self, LogFile *f, int64_t at, int64_t end) noexcept nogil:
        # scan_next_good without the holes. A record's first bytes may be zeros, at the end of one.
        cdef int64_t stop, data, good
        while at < end:
            data = self._data(f, at) - RECORD_HEAD_SIZE
            if data > at:
                at = data
            if f.start + f.size - at <= RECORD_HEAD_SIZE:
                return -1
            stop = at + PIECE if end - at > PIECE else end
            good = scan_next_good(f, at, stop, self.crc_property)
            if good >= 0:
                return good
            at = stop
        return -1

    cdef int64_t _last_byte(self, LogFile *f, int64_t at) noexcept nogil:
        # Behind the last byte at or beyond log offset `at` that is not zero; -1: none.
        cdef int64_t last = -1, stop, i
        at = self._data(f, at)
        while at < f.start + f.size:
            stop = at + PIECE if f.start + f.size - at > PIECE else f.start + f.size
            for i in range(at - f.start, stop - f.start):
                if f.map[i] != 0:
                    last = f.start + i + 1
            at = self._data(f, stop)
        return last

    cdef bint _begins(self, int64_t start) noexcept nogil:
        # Whether a later file has a record where it begins.
        cdef LogFile *f
        cdef RecordView v
        cdef bint found = False
        while not found:
            f = row_find(self.row, start, &self.error)
            if f == NULL:
                return False
            found = record_parse(f.map, f.size, &v) == RECORD_OK and v.physical_offset == f.start
            start = f.start + f.size
            log_file_release(f)
        return True

    cdef void _tail(self, LogFile *f, int64_t at) noexcept nogil:
        # What stands behind the end of the data, in this file and in later ones.
        cdef int64_t last = self._last_byte(f, at)
        cdef int64_t start = f.start + f.size, found
        f = row_find(self.row, start, &self.error)
        while f != NULL:
            found = self._last_byte(f, start)
            if found >= 0:
                last = found
            start = f.start + f.size
            log_file_release(f)
            f = row_find(self.row, start, &self.error)
        if last >= 0:
            self.notes.add(TAIL, at, last, 0, 0)

    cdef void _record(self, RecordView *v) noexcept nogil:
        cdef Bad bad = crc_bad(v, self.crc_property)
        cdef int kind = v.sys_flag & FLAG_TRANSACTION
        cdef PropertyView p
        self.last_timestamp = max(self.last_timestamp, v.store_timestamp)
        if bad != BAD_NOT:
            self.notes.add_queue(BODY_CRC if bad == BAD_BODY_CRC else RECORD_CRC, v.physical_offset, v.size, v.queue_offset, 0,
                                 v.topic, v.topic_size, v.queue_id)
        elif field_bad(v) != BAD_NOT:
            self.notes.add_queue(RECORD_HEADER, v.physical_offset, v.size, v.queue_offset, 0, v.topic, v.topic_size, v.queue_id)
            return
        properties_scan(v.properties, v.properties_size, &p)
        if self.queues is not None and kind != TRANSACTION_PREPARED and kind != TRANSACTION_ROLLBACK:
            self._queued(v, &p)
        if kind != TRANSACTION_ROLLBACK and (p.uniq_key != NULL or p.keys != NULL):
            self._indexed(v, &p)

    cdef void _queued(self, RecordView *v, PropertyView *p) noexcept nogil:
        cdef int64_t code = delay_tags_code(v, p, self.delay_ms, self.delay_levels)
        cdef Light light
        self._entered(v, v.topic, v.topic_size, v.queue_id, v.queue_offset, note_last(v), code)
        if self.light and p.light_names != NULL and light_topic(v.topic, v.topic_size):
            light = lights_of(p)
            while light_next(&light):
                if topic_fits(light.name, light.size):
                    self._entered(v, light.name, light.size, 0, light.queue_offset, light.queue_offset, code)

    cdef void _entered(self, const RecordView *v, const char *topic, int32_t topic_size, int32_t queue_id, int64_t queue_offset,
                       int64_t last, int64_t expected) noexcept nogil:
        # Whether the queue leads to the record from `queue_offset` on; last: queue offset of its last message there.
        cdef unsigned char[UNIT_SIZE] u
        cdef Queue *q = queues_find(self.queues.table, topic, topic_size, queue_id, False)
        cdef int64_t n = 0, code, when
        if q != NULL and queue_offset >= 0:
            n = queue_read(self.queues.table, q, last, u, 1)
        if n < 0:
            self.error = <int> n
            return
        if n == 0:
            self.notes.add_queue(QUEUE_MISSING, v.physical_offset, queue_offset, 0, 0, topic, topic_size, queue_id)
            return
        if unit_physical(u) != v.physical_offset or unit_bytes(u) != v.size:
            self.notes.add_queue(QUEUE_OTHER, v.physical_offset, queue_offset, unit_physical(u), unit_bytes(u), topic,
                                 topic_size, queue_id)
            return
        code = unit_code(u)
        if is_ext_address(code) and queue_read_ext(self.queues.table, q, code, &code, &when, NULL, 0) < 0:
            code = unit_code(u)
        if code != expected:
            self.notes.add_queue(QUEUE_TAGS, v.physical_offset, queue_offset, code, expected, topic, topic_size, queue_id)

    # ---- the index, entry by entry beside the log

    def seek_index(self, int64_t offset):
        """Lets the walk over the log begin at this offset: the index is looked at from about there on, never from behind it."""
        cdef IndexFile *f = NULL
        cdef int32_t low = 1, high, middle
        cdef int file = 0
        while file < self.index_count:
            f = self.index[file]
            low = 1
            high = f.count - 2 if f.count > 3 else 1
            while low < high:
                middle = low + (high - low) // 2
                if self._about(f, middle) < offset:
                    low = middle + 1
                else:
                    high = middle
            if low < f.count - 3 or file + 1 == self.index_count:
                break
            file += 1           # all of it is before, or it is about its end: that is looked at below
        low -= 8
        if low < 1 and file > 0:
            file -= 1
            low = self.index[file].count - 8
        self.at_file = file
        self.at_entry = max(low, 1)

    cdef int64_t _about(self, IndexFile *f, int32_t entry) noexcept nogil:
        # Where entry and the two behind it lead, the middle one: a single wrong entry leads no search astray.
        cdef const unsigned char *e = f.entries + <int64_t> INDEX_ENTRY_SIZE * entry
        cdef int64_t a = entry_physical(e), b = entry_physical(e + INDEX_ENTRY_SIZE)
        return max(min(a, b), min(max(a, b), entry_physical(e + 2 * INDEX_ENTRY_SIZE)))

    cdef const unsigned char *_entry(self) noexcept nogil:
        # The entry the walk is at; NULL behind the last one.
        while self.at_file < self.index_count:
            if self.at_entry < self.index[self.at_file].count:
                return self.index[self.at_file].entries + <int64_t> INDEX_ENTRY_SIZE * self.at_entry
            self.at_file += 1
            self.at_entry = 1
        return NULL

    cdef bint _has(self, int64_t offset, int32_t hash) noexcept nogil:
        # Whether an entry of this record, from the walk's place on, has the hash. They stand together.
        cdef int file = self.at_file
        cdef int32_t entry = self.at_entry
        cdef const unsigned char *e = self._entry()
        cdef bint found = False
        while e != NULL and entry_physical(e) == offset and not found:
            found = entry_hash(e) == hash
            self.at_entry += 1
            e = self._entry()
        self.at_file = file
        self.at_entry = entry
        return found

    cdef void _indexed(self, RecordView *v, PropertyView *p) noexcept nogil:
        cdef const unsigned char *e = self._entry()
        cdef const unsigned char *after
        cdef Keys keys = keys_of(p.uniq_key, p.uniq_key_size, p.keys, p.keys_size)
        cdef int32_t prefix, hash
        while e != NULL and entry_physical(e) != v.physical_offset:
            if entry_physical(e) > v.physical_offset:
                # One entry out of order is damage of its own; two in order are the records that follow.
                after = e + INDEX_ENTRY_SIZE if self.at_entry + 1 < self.index[self.at_file].count else NULL
                if after == NULL or entry_physical(after) > v.physical_offset:
                    break
            self.at_entry += 1
            e = self._entry()
        if e == NULL:
            if self.unindexed == 0:
                self.first_unindexed = v.physical_offset
            self.unindexed += 1
            return              # the index's end is judged by whoever knows the state of the store
        if self.at_file == 0 and self.at_entry == 1 and entry_physical(e) > v.physical_offset:
            return              # its index file was deleted with the log's older files
        prefix = topic_hash(v.topic, v.topic_size)
        while key_next(&keys):
            hash = key_hash(prefix, keys.key, keys.size)
            if not self._has(v.physical_offset, hash):
                self.notes.add(INDEX_MISSING, v.physical_offset, hash, 0, 0)

    cdef int _at(self, int64_t offset, int64_t size, RecordView *v, LogFile **file) noexcept nogil:
        # 1: the record there (size 0: whatever its size), in a held file; 0: none; -1: before the log.
        cdef LogFile *f
        if offset < row_start(self.row) or row_start(self.row) < 0:
            return -1
        f = row_find(self.row, offset, &self.error)
        if f == NULL:
            return 0
        if (record_parse(f.map + (offset - f.start), f.start + f.size - offset, v) == RECORD_OK
                and v.physical_offset == offset and (size == 0 or size == v.size)):
            file[0] = f
            return 1
        log_file_release(f)
        return 0

    def index_file(self, int i, int32_t begin):
        """Entries of index file `i` from number `begin` (1: the first) on. Returns (where to continue, 0 at the end; notes)."""
        cdef int32_t next
        with nogil:
            next = self._index_file(self.index[i], begin)
        return next, self._taken()

    cdef int32_t _index_file(self, IndexFile *f, int32_t begin) noexcept nogil:
        cdef const unsigned char *entry
        cdef LogFile *file = NULL
        cdef RecordView v
        cdef int32_t e = begin
        cdef int rc
        while e < f.count and self.notes.count < NOTES_MAX - 8 and self.error == 0:
            entry = f.entries + <int64_t> INDEX_ENTRY_SIZE * e
            rc = self._at(entry_physical(entry), 0, &v, &file)
            if rc == 0 or (rc == 1 and not note_keyed(&v, entry_hash(entry))):
                self.notes.add(INDEX_WRONG, entry_physical(entry), e, entry_hash(entry), 0)
            if rc == 1:
                log_file_release(file)
            self.index_entries += 1
            e += 1
        return e if e < f.count else 0

    def index_chains(self, int i):
        """Header, slots and chains of index file `i`: what they must be follows from the entries. Returns notes."""
        cdef int rc
        with nogil:
            rc = self._chains(self.index[i])
        if rc < 0:
            raise MemoryError("index slots")
        return self._taken()

    cdef int _chains(self, IndexFile *f) noexcept nogil:
        cdef int32_t *last = <int32_t *> calloc(f.slots, sizeof(int32_t))
        cdef const unsigned char *entry
        cdef int32_t e, slot, used = 0
        if last == NULL:
            return -1
        for e in range(1, f.count):
            entry = f.entries + <int64_t> INDEX_ENTRY_SIZE * e
            slot = <int32_t> (<uint32_t> entry_hash(entry) % <uint32_t> f.slots)
            if entry_previous(entry) != last[slot] and self.notes.count < NOTES_MAX - 8:
                self.notes.add(INDEX_CHAIN, entry_physical(entry), e, entry_previous(entry), last[slot])
            used += last[slot] == 0
            last[slot] = e
        for slot in range(f.slots):
            e = rmq_get32(f.map + INDEX_HEADER_SIZE + INDEX_SLOT_SIZE * <int64_t> slot)
            if e != last[slot] and self.notes.count < NOTES_MAX - 8:
                self.notes.add(INDEX_SLOT, 0, slot, e, last[slot])
        free(last)
        self._header(f, INDEX_AT_BEGIN_PHYSICAL, entry_physical(f.entries + INDEX_ENTRY_SIZE))
        self._header(f, INDEX_AT_END_PHYSICAL, entry_physical(f.entries + <int64_t> INDEX_ENTRY_SIZE * (f.count - 1)))
        self._header(f, INDEX_AT_COUNT, f.count)
        return 0

    cdef void _header(self, IndexFile *f, int field, int64_t expected) noexcept nogil:
        cdef int64_t found = rmq_get32(f.map + field) if field == INDEX_AT_COUNT else rmq_get64(f.map + field)
        if f.count > 1 and found != expected:
            self.notes.add(INDEX_HEADER, 0, field, found, expected)

    # ---- queues to log

    def queue(self, bytes topic not None, int32_t queue_id, int64_t begin, int64_t end):
        """Entries of a queue from `begin` on, below queue offset `end`. Returns (where to continue, -1 at the end; notes)."""
        cdef Queue *q = queues_find(self.queues.table, topic, <int32_t> len(topic), queue_id, False)
        cdef int64_t next = -1
        if q != NULL:
            with nogil:
                next = self._queue(q, begin, end)
        return next, self._taken()

    cdef int64_t _queue(self, Queue *q, int64_t at, int64_t end) noexcept nogil:
        cdef unsigned char[UNITS * UNIT_SIZE] units
        cdef const unsigned char *u
        cdef LogFile *f = NULL
        cdef RecordView v
        cdef int64_t n, i
        cdef int rc
        while at < end and self.notes.count < NOTES_MAX - UNITS and self.error == 0:
            n = queue_read(self.queues.table, q, at, units, UNITS if end - at > UNITS else end - at)
            if n <= 0:
                self.error = <int> n
                return -1
            for i in range(n):
                u = units + i * UNIT_SIZE
                self.units += 1
                if unit_blank(u):
                    continue
                rc = self._at(unit_physical(u), unit_bytes(u), &v, &f)
                if rc == 0 or (rc == 1 and not note_in_place(q, &v, at + i)):
                    self.notes.add_queue(QUEUE_WRONG, unit_physical(u), at + i, unit_bytes(u), 0, q.topic, q.topic_size,
                                         q.queue_id)
                if rc == 1:
                    log_file_release(f)
            at += n
        return at if at < end else -1
