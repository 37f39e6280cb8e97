"""A part of a CommitLog file as columns in Arrow's layout: one native call a batch, one copy of each body.

A batch is made in two steps without the GIL: records are walked and gathered as pointers into the file, then buffers of exactly
the right size are filled. Nothing but the file named is opened, and it is only read. Contract in _columns.pxd and _walk.pxd.
"""
import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memset

from rmq_store.access.bulk._text cimport all_ascii, host_copy, text_copy
from rmq_store.access.bulk._walk cimport (STEP_BAD, STEP_END, STEP_PAUSE, STEP_RECORD, VERIFY_CRC, VERIFY_HEADER, VERIFY_NONE,
                                          walk_begin, walk_next, walk_take, window_close, window_open)
from rmq_store.base.io._io cimport IoTable
from rmq_store.base.io._sync cimport ENOMEM
from rmq_store.codec._layout cimport FLAG_BORN_V6, FLAG_STORE_V6, FLAG_TRANSACTION, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from rmq_store.codec._record cimport PropertyView, RecordView, host_size, properties_scan
from rmq_store.codec._text cimport Property, property_next
from rmq_store.filter._program cimport FILTER_TRUE, SqlFilter, filter_evaluate, filter_of

from rmq_store.codec.bad import Bad
from rmq_store.errors import ConfigError
from rmq_store.fields import NamedTuple

cdef enum:
    HOST_TEXT_MAX = 72
    ERRNO_MAX = 4096

BAD_TEXTS = (None, *(bad.text for bad in Bad))      # by the number in _bad.pxd
VERIFY = {"none": VERIFY_NONE, "header": VERIFY_HEADER, "crc": VERIFY_CRC}

# Columns by kind: 32-bit, 64-bit, text (UTF-8, may be null), bytes, properties as a map.
INT32_COLUMNS = ("queueId", "flag", "storeSize", "sysFlag", "reconsumeTimes", "bodyCrc", "bodySize")
INT64_COLUMNS = ("queueOffset", "bornTimestamp", "storeTimestamp", "physicalOffset", "preparedTransactionOffset")
TIME_COLUMNS = ("bornTimestamp", "storeTimestamp")
TEXT_COLUMNS = ("topic", "tags", "keys", "msgId", "bornHost", "storeHost")
BYTES_COLUMNS = ("body", "propertiesRaw")
MAP_COLUMN = "properties"


class Region(NamedTuple):
    """A part of the log that holds no good record: log offsets [begin, end), and why the walk could not continue at `begin`."""

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
    half-written record end it in order. whole_before: ms since 1970; a newest record that was stored before has no writer any
    more, so that zeros in its properties are its own (0: they may be what is not written yet). aligned: a record is known to
    begin at `begin`. verify: "none" (lengths and the record's own offset, never less), "header", "crc". max_record: bytes of
    the longest record there may be; a body longer than that could hide a false record from a split that begins inside it.
    mapped: map the file, else read pieces of it (network file systems). Raises OSError. One thread at a time; close() or a
    `with` block releases the file.
    """

    def __cinit__(self, path, int64_t start, int64_t begin, int64_t end, *, bint newest=False, bint aligned=False,
                  str verify="none", int64_t max_record=8 << 20, bint mapped=True, int64_t whole_before=0, IoTable io=None):
        cdef int rc
        self.walk.w.fd = -1
        if verify not in VERIFY:
            raise ConfigError(f"verify is {verify!r}: it is none, header or crc")
        self.path = os.fspath(path)
        self._owner = IoTable() if io is None else io
        self.walk.start = start
        self.walk.newest = newest
        self.walk.whole_before = whole_before
        self.walk.verify = VERIFY[verify]
        self.walk.max_record = max_record
        self.choose()
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

    def choose(self, *, selectors=None, tags=None, sql=None, time_low=None, time_high=None, bint transactional=True):
        """Which rows batch() and skip() return.

        selectors: [(topic bytes or None, queue id or None, low, high)]: the first one of a row's topic and queue decides, by
        low <= queueOffset < high; without one the row is left out. tags: bytes. sql: text, SqlFilter. time_low, time_high: ms
        since 1970 of storeTimestamp, [low, high). transactional: with prepared and rollback messages, which no queue leads to.
        """
        cdef int64_t i
        cdef bytes text
        kept = self._kept = [filter_of(sql)]
        self.program = NULL if sql is None else &(<SqlFilter> kept[0]).program
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
                self.selectors[i].low, self.selectors[i].high = low, high
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
                        BAD_TEXTS[self.bad_regions[i].kind]) for i in range(self.bad_count)]
        self.bad_count = 0
        return found

    # ---- gathering

    cdef bint _wanted(self, const RecordView *v, const PropertyView *p) noexcept nogil:
        cdef int64_t i
        cdef const Selector *s
        cdef int kind = v.sys_flag & FLAG_TRANSACTION
        if not (self.time_low <= v.store_timestamp < self.time_high):
            return False
        if not self.transactional and (kind == TRANSACTION_PREPARED or kind == TRANSACTION_ROLLBACK):
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
        return self.program == NULL or filter_evaluate(self.program, v.properties, v.properties_size) == FILTER_TRUE

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
        """The next rows as (count, {column: buffers}); None at the end. A count of 0 means: look at take_bad(), and continue.

        columns: names out of INT32_COLUMNS, INT64_COLUMNS (bytes of native integers; timestamps in microseconds),
        TEXT_COLUMNS, BYTES_COLUMNS (TextBuffers) and "properties" (MapBuffers). max_bytes: of the records, soft.
        """
        cdef int64_t n = 0, rc
        cdef tuple names = tuple(columns)       # before the look at `ended`: it may be Python code that closes this
        cdef bint want_map = MAP_COLUMN in names
        cdef bint scan = any(c in names for c in ("tags", "keys", "msgId")) or self.tags != NULL
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
        return n, {name: self._column(name, n) for name in names}

    def skip(self, *, int64_t max_rows=INT64_MAX, int64_t max_bytes=INT64_MAX):
        """Walks on without returning anything: over at most so many chosen rows, and record bytes (at least one record).

        Returns (chosen rows, record bytes). Stops behind a bad region too: take_bad() tells.
        """
        cdef int64_t n = 0, size = 0
        cdef int step = STEP_END, rc = 0
        cdef RecordView v
        cdef PropertyView p
        cdef bint all_rows = self.tags == NULL and self.program == NULL and self.selectors == NULL and self.transactional \
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

    cdef object _column(self, str name, int64_t n):
        # Buffers of one column of the rows gathered last.
        cdef Row *row = self.rows
        cdef RecordView *v = &row.v
        if name in INT32_COLUMNS:
            return self._int32(_int32_field(v, name), n)
        if name in INT64_COLUMNS:
            return self._int64(_int64_field(v, name), n, name in TIME_COLUMNS)
        if name == "body":
            return self._pieces(&v.body, &v.body_size, sizeof(Row), n, False)
        if name == "propertiesRaw":
            return self._pieces(&v.properties, &v.properties_size, sizeof(Row), n, False)
        if name == "topic":
            return self._pieces(&v.topic, &v.topic_size, sizeof(Row), n, True)
        if name == "tags":
            return self._pieces(&row.p.tags, &row.p.tags_size, sizeof(Row), n, True)
        if name == "keys":
            return self._pieces(&row.p.keys, &row.p.keys_size, sizeof(Row), n, True)
        if name == "msgId":
            return self._pieces(&row.p.uniq_key, &row.p.uniq_key_size, sizeof(Row), n, True)
        if name == "bornHost" or name == "storeHost":
            return self._hosts(name == "bornHost", n)
        if name == MAP_COLUMN:
            return self._map(n)
        raise ConfigError(f"column {name!r} is unknown to the kernel")

    cdef bytes _int32(self, const int32_t *first, int64_t n):
        cdef bytes out = PyBytes_FromStringAndSize(NULL, n * 4)
        cdef int32_t *to = <int32_t *> PyBytes_AS_STRING(out)
        cdef const char *at = <const char *> first
        cdef int64_t i
        with nogil:
            for i in range(n):
                to[i] = (<const int32_t *> at)[0]
                at += sizeof(Row)
        return out

    cdef bytes _int64(self, const int64_t *first, int64_t n, bint milliseconds):
        cdef bytes out = PyBytes_FromStringAndSize(NULL, n * 8)
        cdef int64_t *to = <int64_t *> PyBytes_AS_STRING(out)
        cdef const char *at = <const char *> first
        cdef int64_t i, value
        with nogil:
            for i in range(n):
                value = (<const int64_t *> at)[0]
                to[i] = _microseconds(value) if milliseconds else value
                at += sizeof(Row)
        return out

    cdef object _pieces(self, const void *first, const int32_t *first_size, size_t step, int64_t n, bint text):
        # A column of pieces of the file. first, first_size: where the pointer to the first piece (NULL: null) and its size lie;
        # those of the next are `step` bytes further. text: what is not ASCII is written as Java reads it.
        cdef bytes offsets = PyBytes_FromStringAndSize(NULL, (n + 1) * 4)
        cdef int32_t *ends = <int32_t *> PyBytes_AS_STRING(offsets)
        cdef const char *at = <const char *> first
        cdef const char *size_at = <const char *> first_size
        cdef const char *piece
        cdef int64_t i, total = 0, nulls = 0
        ends[0] = 0
        with nogil:
            for i in range(n):
                if (<const char *const *> (at + i * step))[0] != NULL:
                    total += (<const int32_t *> (size_at + i * step))[0]
                else:
                    nulls += 1
                ends[i + 1] = <int32_t> total
        _check_total(total, self.path)
        cdef bytes data = PyBytes_FromStringAndSize(NULL, total)
        cdef char *to = PyBytes_AS_STRING(data)
        cdef bint plain
        with nogil:
            for i in range(n):
                if ends[i + 1] > ends[i]:
                    memcpy(to + ends[i], (<const char *const *> (at + i * step))[0], ends[i + 1] - ends[i])
            plain = not text or all_ascii(to, total)
        if not plain:
            total = 0
            with nogil:
                for i in range(n):
                    piece = (<const char *const *> (at + i * step))[0]
                    if piece != NULL:
                        total += text_copy(NULL, piece, (<const int32_t *> (size_at + i * step))[0])
                    ends[i + 1] = <int32_t> total
            _check_total(total, self.path)
            data = PyBytes_FromStringAndSize(NULL, total)
            to = PyBytes_AS_STRING(data)
            with nogil:
                for i in range(n):
                    piece = (<const char *const *> (at + i * step))[0]
                    if piece != NULL:
                        text_copy(to + ends[i], piece, (<const int32_t *> (size_at + i * step))[0])
        if nulls == 0:
            return TextBuffers(None, offsets, data)
        cdef bytes bits = PyBytes_FromStringAndSize(NULL, (n + 7) // 8)
        cdef uint8_t *valid = <uint8_t *> PyBytes_AS_STRING(bits)
        memset(valid, 0xFF, (n + 7) // 8)
        with nogil:
            for i in range(n):
                if (<const char *const *> (at + i * step))[0] == NULL:
                    valid[i >> 3] &= <uint8_t> ~(1 << (i & 7))
        return TextBuffers(bits, offsets, data)

    cdef object _hosts(self, bint born, int64_t n):
        cdef bytes offsets = PyBytes_FromStringAndSize(NULL, (n + 1) * 4)
        cdef int32_t *ends = <int32_t *> PyBytes_AS_STRING(offsets)
        cdef int64_t i, total = 0
        cdef HostText host
        ends[0] = 0
        host.bytes = NULL
        with nogil:
            for i in range(n):
                _host(&host, &self.rows[i].v, born)
                total += host.size
                ends[i + 1] = <int32_t> total
        _check_total(total, self.path)
        cdef bytes data = PyBytes_FromStringAndSize(NULL, total)
        cdef char *to = PyBytes_AS_STRING(data)
        with nogil:
            for i in range(n):
                _host(&host, &self.rows[i].v, born)
                memcpy(to + ends[i], host.text, host.size)
        return TextBuffers(None, offsets, data)

    cdef object _map(self, int64_t n):
        cdef bytes offsets = PyBytes_FromStringAndSize(NULL, (n + 1) * 4)
        cdef int32_t *ends = <int32_t *> PyBytes_AS_STRING(offsets)
        cdef Property none
        cdef Property *s = self.segments if self.segments != NULL else &none      # no property yet: no memory for any
        cdef int64_t i, m = self.segment_count
        ends[0] = 0
        for i in range(n):
            ends[i + 1] = ends[i] + self.rows[i].segments
        return MapBuffers(offsets, m, self._pieces(&s.name, &s.name_size, sizeof(Property), m, True),
                          self._pieces(&s.value, &s.value_size, sizeof(Property), m, True))


cdef const int32_t *_int32_field(const RecordView *v, str name):
    if name == "queueId":
        return &v.queue_id
    if name == "flag":
        return &v.flag
    if name == "storeSize":
        return &v.size
    if name == "sysFlag":
        return &v.sys_flag
    if name == "reconsumeTimes":
        return &v.reconsume_times
    if name == "bodyCrc":
        return &v.body_crc
    return &v.body_size


cdef const int64_t *_int64_field(const RecordView *v, str name):
    if name == "queueOffset":
        return &v.queue_offset
    if name == "bornTimestamp":
        return &v.born_timestamp
    if name == "storeTimestamp":
        return &v.store_timestamp
    if name == "physicalOffset":
        return &v.physical_offset
    return &v.prepared_transaction_offset


cdef inline int64_t _microseconds(int64_t milliseconds) noexcept nogil:
    # A time that no 64-bit count of microseconds holds becomes the nearest that one does.
    if milliseconds > INT64_MAX // 1000:
        return INT64_MAX
    if milliseconds < INT64_MIN // 1000 + 1:
        return INT64_MIN + 1
    return milliseconds * 1000


cdef struct HostText:
    # The host that was written as text last: neighbours mostly have the same.
    const unsigned char *bytes      # of a record, NULL: none yet
    int size
    bint v6
    char[HOST_TEXT_MAX] text


cdef inline void _host(HostText *h, const RecordView *v, bint born) noexcept nogil:
    cdef const unsigned char *wanted = v.born_host if born else v.store_host
    cdef bint v6 = (v.sys_flag & (FLAG_BORN_V6 if born else FLAG_STORE_V6)) != 0
    if h.bytes != NULL and h.v6 == v6 and memcmp(h.bytes, wanted, host_size(v6)) == 0:
        return
    h.bytes = wanted
    h.v6 = v6
    h.size = host_copy(h.text, wanted, v6)


cdef int _check_total(int64_t total, path) except -1:
    if total > 0x7FFFFFFF:
        raise ConfigError(f"one batch of {path} holds {total} bytes in one column, the limit is {0x7FFFFFFF}: "
                          "set a smaller batchBytes or batchRows")
    return 0
