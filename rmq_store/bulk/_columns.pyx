"""A part of a CommitLog file as columns in Arrow's layout: one native call a batch, one copy of each body.

A batch is made in two steps without the GIL: records are walked and gathered as pointers into the file, then buffers of exactly
the right size are filled. Nothing but the file named is opened, and it is only read. Contract in _columns.pxd and _walk.pxd.
"""
import os
from typing import NamedTuple

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memset

from rmq_store.bulk._text cimport host_copy, text_copy
from rmq_store.bulk._walk cimport (STEP_BAD, STEP_END, STEP_PAUSE, STEP_RECORD, VERIFY_CRC, VERIFY_HEADER, VERIFY_NONE,
                                   walk_begin, walk_next, walk_take, window_close, window_open)
from rmq_store.codec._record cimport (FLAG_BORN_V6, FLAG_STORE_V6, FLAG_TRANSACTION, TRANSACTION_PREPARED,
                                      TRANSACTION_ROLLBACK, PropertyView, RecordView, properties_scan)
from rmq_store.codec._text cimport Property, property_next
from rmq_store.io._io cimport IoTable
from rmq_store.io._sync cimport ENOMEM

from rmq_store.errors import ConfigError

cdef enum:
    HOST_TEXT_MAX = 72
    ERRNO_MAX = 4096

BAD_KINDS = ("unknown magic code", "impossible size", "record of another place", "wrong checksum",
             "zeros before the end-of-file record", "field that no store writes")
VERIFY = {"none": VERIFY_NONE, "header": VERIFY_HEADER, "crc": VERIFY_CRC}

# Columns by kind: 32-bit, 64-bit, text (UTF-8, may be null), bytes, properties as a map.
INT32_COLUMNS = ("queueId", "flag", "storeSize", "sysFlag", "reconsumeTimes", "bodyCrc", "bodySize")
INT64_COLUMNS = ("queueOffset", "bornTimestamp", "storeTimestamp", "physicalOffset", "preparedTransactionOffset")
TEXT_COLUMNS = ("topic", "tags", "keys", "msgId", "bornHost", "storeHost")
BYTES_COLUMNS = ("body", "propertiesRaw")
MAP_COLUMN = "properties"

cdef enum Text:
    TEXT_TOPIC = 0
    TEXT_TAGS = 1
    TEXT_KEYS = 2
    TEXT_UNIQUE = 3
    TEXT_BORN_HOST = 4
    TEXT_STORE_HOST = 5


class Region(NamedTuple):
    """A part of the log that holds no good record: log offsets [begin, end), and why the walk could not go on at `begin`."""

    begin: int
    end: int
    kind: str


class TextBuffers(NamedTuple):
    """A text or bytes column: validity bits (None: no nulls), int32 offsets, data."""

    validity: object
    offsets: bytes
    data: bytes


class MapBuffers(NamedTuple):
    """The properties of each row: int32 offsets into entries, then names and values as offsets and data."""

    offsets: bytes
    entries: int
    names: TextBuffers
    values: TextBuffers


cdef int _room(void **memory, int64_t *capacity, int64_t needed, size_t each) noexcept nogil:
    cdef int64_t wanted = capacity[0] if capacity[0] > 0 else 256
    cdef void *grown
    if needed <= capacity[0]:
        return 0
    while wanted < needed:
        wanted *= 2
    grown = realloc(memory[0], wanted * each)
    if grown == NULL:
        return -ENOMEM
    memory[0] = grown
    capacity[0] = wanted
    return 0


cdef class Split:
    """One part of one CommitLog file: the records whose first byte lies in log offsets [begin, end).

    path: the file. start: log offset of its first byte (its name). newest: it is the last file of its store, so zeros or a
    half-written record end it in order. aligned: a record is known to begin at `begin`. verify: "none" (lengths and the
    record's own offset, never less), "header", "crc". max_record: bytes of the longest record there may be; a body longer than
    that could hide a false record from a split that begins inside it. mapped: map the file, else read pieces of it (network
    file systems). Raises OSError. One thread at a time; close() or a `with` block releases the file.
    """

    def __cinit__(self, path, int64_t start, int64_t begin, int64_t end, *, bint newest=False, bint aligned=False,
                  str verify="none", int64_t max_record=8 << 20, bint mapped=True, IoTable io=None):
        cdef int rc
        self.walk.w.fd = -1
        if verify not in VERIFY:
            raise ConfigError(f"verify is {verify!r}: it is none, header or crc")
        self.path = os.fspath(path)
        self._owner = IoTable() if io is None else io
        self.walk.start = start
        self.walk.newest = newest
        self.walk.verify = VERIFY[verify]
        self.walk.max_record = max_record
        self.time_low = INT64_MIN
        self.time_high = INT64_MAX
        self.transactional = True
        name = os.fsencode(self.path)
        cdef const char *text = name
        cdef int64_t from_position = begin - start
        cdef int64_t to_position = end - start
        if from_position < 0:
            raise ConfigError(f"split [{begin}, {end}) begins before its file {self.path}")
        with nogil:
            rc = window_open(&self.walk.w, self._owner.table, text, mapped)
            if rc >= 0:
                self.opened = True
                rc = walk_begin(&self.walk, from_position, to_position, aligned)
        if rc < 0:
            raise OSError(-rc, os.strerror(-rc), self.path)

    def __dealloc__(self):
        self.close()
        free(self.selectors)
        free(self.tags)
        free(self.rows)
        free(self.segments)
        free(self.bad_regions)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        """Unmaps and closes the file. What was returned stays good: it was copied."""
        if self.opened:
            self.opened = False
            self.ended = True
            window_close(&self.walk.w)

    def choose(self, *, selectors=None, tags=None, time_low=None, time_high=None, bint transactional=True):
        """Which rows batch() and skip() return.

        selectors: [(topic bytes or None, queue id or None, low, high)]: the first one of a row's topic and queue decides, by
        low <= queueOffset < high; without one the row is left out. tags: bytes. time_low, time_high: ms since 1970 of
        storeTimestamp, [low, high). transactional: with prepared and rollback messages, which no queue leads to.
        """
        cdef int64_t i
        cdef bytes text
        kept = []
        free(self.selectors)
        free(self.tags)
        self.selectors = NULL
        self.tags = NULL
        self.selector_count = 0
        self.tag_count = -1 if tags is None else 0
        if selectors is not None:
            chosen = list(selectors)
            self.selectors = <Selector *> calloc(len(chosen) + 1, sizeof(Selector))
            if self.selectors == NULL:
                raise MemoryError("selectors")
            for i, (topic, queue_id, low, high) in enumerate(chosen):
                self.selectors[i].topic_size = -1
                if topic is not None:
                    text = topic
                    kept.append(text)
                    self.selectors[i].topic = text
                    self.selectors[i].topic_size = <int32_t> len(text)
                self.selectors[i].queue_id = -1 if queue_id is None else queue_id
                self.selectors[i].low = low
                self.selectors[i].high = high
            self.selector_count = len(chosen)
        if tags is not None:
            chosen = list(tags)
            self.tags = <Property *> calloc(len(chosen) + 1, sizeof(Property))
            if self.tags == NULL:
                raise MemoryError("tags")
            for i, tag in enumerate(chosen):
                text = tag
                kept.append(text)
                self.tags[i].value = text
                self.tags[i].value_size = <int32_t> len(text)
            self.tag_count = len(chosen)
        self._kept = kept
        self.time_low = INT64_MIN if time_low is None else time_low
        self.time_high = INT64_MAX if time_high is None else time_high
        self.transactional = transactional

    # ---- what the walk found

    @property
    def first(self):
        """Log offset of the first record of this part, None where none was met yet."""
        return None if self.walk.first < 0 else self.walk.start + self.walk.first

    @property
    def position(self):
        """Log offset where the walk stands: behind the last record returned, or where the data of a newest file ended."""
        return self.walk.start + (self.walk.tail if self.walk.tail >= 0 else self.walk.at)

    @property
    def tail(self):
        """Log offset where the data of the newest file ended, None where that was not met."""
        return None if self.walk.tail < 0 else self.walk.start + self.walk.tail

    def take_bad(self):
        """Bad regions met since the last call: list of Region."""
        found = [Region(self.walk.start + self.bad_regions[i].begin, self.walk.start + self.bad_regions[i].end,
                        BAD_KINDS[self.bad_regions[i].kind]) for i in range(self.bad_count)]
        self.bad_count = 0
        return found

    # ---- gathering

    cdef bint _wanted(self, const RecordView *v, const PropertyView *p) noexcept nogil:
        cdef int64_t i
        cdef const Selector *s
        cdef int kind
        if not (self.time_low <= v.store_timestamp < self.time_high):
            return False
        if not self.transactional:
            kind = v.sys_flag & FLAG_TRANSACTION
            if kind == TRANSACTION_PREPARED or kind == TRANSACTION_ROLLBACK:
                return False
        if self.selectors != NULL:
            for i in range(self.selector_count):
                s = &self.selectors[i]
                if ((s.topic_size < 0 or (s.topic_size == v.topic_size and memcmp(s.topic, v.topic, v.topic_size) == 0))
                        and (s.queue_id < 0 or s.queue_id == v.queue_id)):
                    if not (s.low <= v.queue_offset < s.high):
                        return False
                    break
            else:
                return False
        if self.tags != NULL:
            if p.tags == NULL:
                return False
            for i in range(self.tag_count):
                if self.tags[i].value_size == p.tags_size and memcmp(self.tags[i].value, p.tags, p.tags_size) == 0:
                    break
            else:
                return False
        return True

    cdef int _note_bad(self) noexcept nogil:
        cdef int rc = _room(<void **> &self.bad_regions, &self.bad_capacity, self.bad_count + 1, sizeof(BadRegion))
        if rc < 0:
            return rc
        self.bad_regions[self.bad_count].begin = self.walk.bad_begin
        self.bad_regions[self.bad_count].end = self.walk.bad_end
        self.bad_regions[self.bad_count].kind = self.walk.bad_kind
        self.bad_count += 1
        return 0

    cdef int _split_properties(self, Row *row) noexcept nogil:
        # The last of a name wins, at the place of the first.
        cdef const char *text = row.v.properties
        cdef const char *end = text + row.v.properties_size
        cdef Property found
        cdef Property *s
        cdef int64_t i
        cdef int rc
        row.segment = self.segment_count
        while property_next(&text, end, &found):
            for i in range(row.segment, self.segment_count):
                s = &self.segments[i]
                if s.name_size == found.name_size and memcmp(s.name, found.name, found.name_size) == 0:
                    s.value = found.value
                    s.value_size = found.value_size
                    break
            else:
                rc = _room(<void **> &self.segments, &self.segment_capacity, self.segment_count + 1, sizeof(Property))
                if rc < 0:
                    return rc
                self.segments[self.segment_count] = found
                self.segment_count += 1
        row.segments = <int32_t> (self.segment_count - row.segment)
        return 0

    cdef int _gather(self, bint want_map, bint need_properties, int64_t max_rows, int64_t max_bytes,
                     int64_t *count) noexcept nogil:
        # Rows until a limit, the end, or a bad region (which comes after the rows before it). 0 or -errno.
        cdef int64_t n = 0, size = 0
        cdef int step, rc = 0
        cdef Row *row
        self.segment_count = 0
        count[0] = 0
        rc = _room(<void **> &self.rows, &self.row_capacity, max_rows, sizeof(Row))
        if rc < 0:
            return rc
        while n < max_rows and size < max_bytes:
            row = &self.rows[n]
            step = walk_next(&self.walk, &row.v)
            if step == STEP_PAUSE:
                if n > 0:
                    break
                self.walk.w.pinned = False
                continue
            if step == STEP_END:
                self.ended = True
                break
            if step == STEP_BAD:
                rc = self._note_bad()
                break
            if step < 0:
                rc = step
                break
            self.records += 1
            self.record_bytes += row.v.size
            walk_take(&self.walk, &row.v)
            if need_properties:
                properties_scan(row.v.properties, row.v.properties_size, &row.p)
            if not self._wanted(&row.v, &row.p):
                continue
            if want_map:
                rc = self._split_properties(row)
                if rc < 0:
                    break
            self.walk.w.pinned = True       # rows point into it
            size += row.v.size
            n += 1
        self.walk.w.pinned = False
        count[0] = n
        return rc

    def batch(self, columns, *, int64_t max_rows=4096, int64_t max_bytes=16 << 20):
        """The next rows as (count, {column: buffers}); None at the end. A count of 0 means: look at take_bad(), and go on.

        columns: names out of INT32_COLUMNS, INT64_COLUMNS (bytes of native integers; timestamps in microseconds),
        TEXT_COLUMNS, BYTES_COLUMNS (TextBuffers) and "properties" (MapBuffers). max_bytes: of the records, soft.
        """
        cdef int64_t n = 0
        cdef int rc
        cdef bint want_map = MAP_COLUMN in columns
        cdef bint scan = self.tags != NULL or any(c in columns for c in ("tags", "keys", "msgId"))
        if self.ended:
            return None
        max_bytes = max(1, min(max_bytes, 1 << 30))
        max_rows = max(1, max_rows)
        with nogil:
            rc = self._gather(want_map, scan, max_rows, max_bytes, &n)
        if rc < 0:
            raise OSError(-rc, os.strerror(-rc), self.path)
        if n == 0 and self.ended:
            return None
        return n, {name: self._column(name, n) for name in columns}

    def skip(self, *, int64_t max_rows=INT64_MAX, int64_t max_bytes=INT64_MAX):
        """Walks on without returning anything: over at most so many chosen rows, and record bytes (at least one record).

        Returns (chosen rows, record bytes). Stops behind a bad region too: take_bad() tells.
        """
        cdef int64_t n = 0, size = 0
        cdef int step = STEP_END, rc = 0
        cdef RecordView v
        cdef PropertyView p
        cdef bint all_rows = self.tags == NULL and self.selectors == NULL and self.transactional \
            and self.time_low == INT64_MIN and self.time_high == INT64_MAX
        if self.ended:
            return 0, 0
        with nogil:
            while n < max_rows:
                step = walk_next(&self.walk, &v)
                if step != STEP_RECORD:
                    break
                if size > 0 and v.size > max_bytes - size:
                    break
                self.records += 1
                self.record_bytes += v.size
                walk_take(&self.walk, &v)
                size += v.size
                if not all_rows:
                    if self.tags != NULL:
                        properties_scan(v.properties, v.properties_size, &p)
                    if not self._wanted(&v, &p):
                        continue
                n += 1
            if step == STEP_BAD:
                rc = self._note_bad()
            elif step < 0:
                rc = step
        if rc < 0:
            raise OSError(-rc, os.strerror(-rc), self.path)
        if step == STEP_END:
            self.ended = True
        return n, size

    @property
    def done(self):
        """True where nothing more is to come."""
        return self.ended

    # ---- copying out

    def _column(self, str name, int64_t n):
        """Buffers of one column of the rows gathered last."""
        if name in INT32_COLUMNS:
            return self._int32(INT32_COLUMNS.index(name), n)
        if name in INT64_COLUMNS:
            return self._int64(INT64_COLUMNS.index(name), n)
        if name in TEXT_COLUMNS:
            return self._text(TEXT_COLUMNS.index(name), n)
        if name in BYTES_COLUMNS:
            return self._bytes(name == "body", n)
        if name == MAP_COLUMN:
            return self._map(n)
        raise ConfigError(f"column {name!r} is unknown to the kernel")

    def _int32(self, int which, int64_t n):
        cdef bytes out = PyBytes_FromStringAndSize(NULL, n * 4)
        cdef int32_t *to = <int32_t *> PyBytes_AS_STRING(out)
        cdef int64_t i
        cdef const RecordView *v
        with nogil:
            for i in range(n):
                v = &self.rows[i].v
                if which == 0:
                    to[i] = v.queue_id
                elif which == 1:
                    to[i] = v.flag
                elif which == 2:
                    to[i] = v.size
                elif which == 3:
                    to[i] = v.sys_flag
                elif which == 4:
                    to[i] = v.reconsume_times
                elif which == 5:
                    to[i] = v.body_crc
                else:
                    to[i] = v.body_size
        return out

    def _int64(self, int which, int64_t n):
        cdef bytes out = PyBytes_FromStringAndSize(NULL, n * 8)
        cdef int64_t *to = <int64_t *> PyBytes_AS_STRING(out)
        cdef int64_t i
        cdef const RecordView *v
        with nogil:
            for i in range(n):
                v = &self.rows[i].v
                if which == 0:
                    to[i] = v.queue_offset
                elif which == 1:
                    to[i] = _microseconds(v.born_timestamp)
                elif which == 2:
                    to[i] = _microseconds(v.store_timestamp)
                elif which == 3:
                    to[i] = v.physical_offset
                else:
                    to[i] = v.prepared_transaction_offset
        return out

    def _bytes(self, bint body, int64_t n):
        cdef bytes offsets = PyBytes_FromStringAndSize(NULL, (n + 1) * 4)
        cdef int32_t *ends = <int32_t *> PyBytes_AS_STRING(offsets)
        cdef int64_t i, total = 0
        cdef const RecordView *v
        ends[0] = 0
        for i in range(n):
            total += self.rows[i].v.body_size if body else self.rows[i].v.properties_size
            ends[i + 1] = <int32_t> total
        _check_total(total, self.path)
        cdef bytes data = PyBytes_FromStringAndSize(NULL, total)
        cdef char *to = PyBytes_AS_STRING(data)
        with nogil:
            for i in range(n):
                v = &self.rows[i].v
                if body:
                    memcpy(to + ends[i], v.body, v.body_size)
                else:
                    memcpy(to + ends[i], v.properties, v.properties_size)
        return TextBuffers(None, offsets, data)

    def _text(self, int which, int64_t n):
        cdef bytes offsets = PyBytes_FromStringAndSize(NULL, (n + 1) * 4)
        cdef bytes bits = PyBytes_FromStringAndSize(NULL, (n + 7) // 8)
        cdef int32_t *ends = <int32_t *> PyBytes_AS_STRING(offsets)
        cdef uint8_t *valid = <uint8_t *> PyBytes_AS_STRING(bits)
        cdef int64_t i, total = 0, size = 0, nulls = 0
        cdef const char *text = NULL
        cdef bint host = which == TEXT_BORN_HOST or which == TEXT_STORE_HOST
        cdef char[HOST_TEXT_MAX] room
        memset(valid, 0xFF, (n + 7) // 8)
        ends[0] = 0
        with nogil:
            for i in range(n):
                if host:
                    total += _host(&self.rows[i].v, which, room)
                else:
                    text = _piece(&self.rows[i], which, &size)
                    if text == NULL:
                        valid[i >> 3] &= <uint8_t> ~(1 << (i & 7))
                        nulls += 1
                    else:
                        total += text_copy(NULL, text, size)
                ends[i + 1] = <int32_t> total
        _check_total(total, self.path)
        cdef bytes data = PyBytes_FromStringAndSize(NULL, total)
        cdef char *to = PyBytes_AS_STRING(data)
        with nogil:
            for i in range(n):
                if host:
                    size = _host(&self.rows[i].v, which, room)
                    memcpy(to + ends[i], room, size)
                else:
                    text = _piece(&self.rows[i], which, &size)
                    if text != NULL:
                        text_copy(to + ends[i], text, size)
        return TextBuffers(bits if nulls > 0 else None, offsets, data)

    def _map(self, int64_t n):
        cdef bytes offsets = PyBytes_FromStringAndSize(NULL, (n + 1) * 4)
        cdef int32_t *ends = <int32_t *> PyBytes_AS_STRING(offsets)
        cdef int64_t i
        ends[0] = 0
        for i in range(n):
            ends[i + 1] = ends[i] + self.rows[i].segments
        return MapBuffers(offsets, self.segment_count, self._segment_text(True), self._segment_text(False))

    def _segment_text(self, bint names):
        cdef int64_t n = self.segment_count
        cdef bytes offsets = PyBytes_FromStringAndSize(NULL, (n + 1) * 4)
        cdef int32_t *ends = <int32_t *> PyBytes_AS_STRING(offsets)
        cdef int64_t i, total = 0
        cdef const Property *s
        ends[0] = 0
        with nogil:
            for i in range(n):
                s = &self.segments[i]
                total += text_copy(NULL, s.name, s.name_size) if names else text_copy(NULL, s.value, s.value_size)
                ends[i + 1] = <int32_t> total
        _check_total(total, self.path)
        cdef bytes data = PyBytes_FromStringAndSize(NULL, total)
        cdef char *to = PyBytes_AS_STRING(data)
        with nogil:
            for i in range(n):
                s = &self.segments[i]
                if names:
                    text_copy(to + ends[i], s.name, s.name_size)
                else:
                    text_copy(to + ends[i], s.value, s.value_size)
        return TextBuffers(None, offsets, data)


cdef inline int64_t _microseconds(int64_t milliseconds) noexcept nogil:
    # A time that no 64-bit count of microseconds holds becomes the nearest that one does.
    if milliseconds > INT64_MAX // 1000:
        return INT64_MAX
    if milliseconds < INT64_MIN // 1000 + 1:
        return INT64_MIN + 1
    return milliseconds * 1000


cdef inline const char *_piece(const Row *row, int which, int64_t *size) noexcept nogil:
    if which == TEXT_TOPIC:
        size[0] = row.v.topic_size
        return row.v.topic
    if which == TEXT_TAGS:
        size[0] = row.p.tags_size
        return row.p.tags
    if which == TEXT_KEYS:
        size[0] = row.p.keys_size
        return row.p.keys
    size[0] = row.p.uniq_key_size
    return row.p.uniq_key


cdef inline int _host(const RecordView *v, int which, char *room) noexcept nogil:
    if which == TEXT_BORN_HOST:
        return host_copy(room, v.born_host, v.sys_flag & FLAG_BORN_V6)
    return host_copy(room, v.store_host, v.sys_flag & FLAG_STORE_V6)


cdef int _check_total(int64_t total, path) except -1:
    if total > 0x7FFFFFFF:
        raise ConfigError(f"one batch of {path} holds {total} bytes in one column, the limit is {0x7FFFFFFF}: "
                          "set a smaller batchBytes or batchRows")
    return 0
