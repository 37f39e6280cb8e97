"""Walking the raw log and cutting it (RocketMQ: CommitLog.recoverNormally/-Abnormally, MappedFileQueue.truncateDirtyFiles)."""
from libc.stdint cimport INT64_MAX, int32_t, int64_t

from rmq_store.base.io._io cimport IoTable, rmq_io, rmq_pwrite_all
from rmq_store.base.segment._descriptors cimport log_file_drop_fd, log_file_have_fd
from rmq_store.base.segment._file cimport FileRow, LogFile, log_file_release, log_file_sync_dir, row_find, row_pop
from rmq_store.codec._bad cimport BAD_NOT, BAD_PLACE, BAD_RECORD_CRC, BAD_TORN, Bad as _Bad, body_bad, parse_bad
from rmq_store.codec._layout cimport BLANK_SIZE, MAGIC_V1, MAGIC_V2, RECORD_FIXED_SIZE, RECORD_TIMED_SIZE
from rmq_store.codec._record cimport (RECORD_BLANK, RECORD_OK, RecordStatus, RecordView, head_magic, head_store_timestamp,
                                      record_crc_check, record_parse, record_prefetch_next, rmq_get64)

import os

from rmq_store.codec.bad import Bad
from rmq_store.fields import NamedTuple

cdef enum:
    CHUNK = 1 << 20
    SECTOR = 512            # what a device writes whole or not at all; what a kill leaves ends at a multiple of it, too

# By the number of a Bad. Zeros where a record may begin are the end of the data here, and none of its faults.
REASONS = ("end of file", "end of data", *(bad.text for bad in Bad if bad is not Bad.ZEROS))


class Scan(NamedTuple):
    """What a walk over one file found. Offsets are log offsets."""

    end: int                # behind the last good record (the next file's start after an end-of-file record)
    reason: str             # one of REASONS: why the walk ended there
    records: int
    last_timestamp: int     # store time in ms of the last good record, 0: none
    first_unqueued: int     # start of the first good record stored after `queued_until`, -1: none
    first_unflushed: int    # the first that lies behind `flushed_end`, too, or was stored after `flushed_until`


cdef struct ScanState:
    int64_t end
    int64_t records
    int64_t last_timestamp
    int64_t first_unqueued
    int64_t first_unflushed
    _Bad reason


cdef _Bad _check(const RecordView *v, int64_t offset, bint check_crc, bint crc_property) noexcept nogil:
    # The record's own offset must be where it lies: stale records in recycled space have good checksums.
    if v.physical_offset != offset:
        return BAD_PLACE
    if crc_property:
        return BAD_NOT if record_crc_check(v) == 1 else BAD_RECORD_CRC
    return body_bad(v) if check_crc else BAD_NOT


cdef bint _torn(const LogFile *f, const RecordView *v) noexcept nogil:
    # No checksum covers topic and properties. A sector that never reached the device, or a write that a kill cut off, leaves
    # zeros from the sector's beginning to its end, or to the record's: no topic has such a byte, no properties have so many.
    cdef int64_t start = v.start - <const unsigned char *> f.map
    cdef int64_t topic = v.topic - <const char *> f.map
    cdef int64_t behind_topic = topic + v.topic_size
    cdef int64_t properties = v.properties - <const char *> f.map
    cdef int64_t end = properties + v.properties_size
    cdef int64_t sector = topic & ~(<int64_t> SECTOR - 1)
    cdef int64_t at, stop
    if sector <= start:
        sector = (start & ~(<int64_t> SECTOR - 1)) + SECTOR     # with the first one the record would be gone
    while sector < end:
        at = sector if sector > topic else topic
        sector += SECTOR
        stop = sector if sector < end else end
        if at >= behind_topic and stop <= properties:
            continue                            # nothing but the length of the properties, which may be 0
        while at < stop and f.map[at] == 0:
            at += 1
        if at == stop:
            return True
    return False


cdef void _walk(const LogFile *f, int64_t begin, int64_t limit, int64_t queued_until, int64_t flushed_until,
                int64_t flushed_end, bint torn, bint check_crc, bint crc_property, ScanState *w) noexcept nogil:
    cdef int64_t at = begin
    cdef int64_t end = f.start + f.size
    cdef RecordView v
    cdef RecordStatus status
    if limit < end:
        end = limit
    w.records = 0
    w.last_timestamp = 0
    w.first_unqueued = -1
    w.first_unflushed = -1
    w.reason = BAD_NOT
    while True:
        w.end = at
        if end - at < BLANK_SIZE:           # not added to an offset that a file's name may bring near 2^63
            if end == f.start + f.size:
                w.end = end             # no store leaves so little room: nothing fits there, the file is full
            return
        status = record_parse(f.map + (at - f.start), end - at, &v)
        if status == RECORD_BLANK and v.size == f.start + f.size - at:
            w.end = f.start + f.size
            return
        if status != RECORD_OK:
            w.reason = parse_bad(status, &v)
            return
        record_prefetch_next(&v, end - at)
        w.reason = _check(&v, at, check_crc, crc_property)
        if w.reason != BAD_NOT:
            return
        if w.first_unflushed < 0 and (v.store_timestamp > flushed_until or at >= flushed_end):
            w.first_unflushed = at
        if torn and w.first_unflushed >= 0 and _torn(f, &v):
            w.reason = BAD_TORN
            if w.first_unflushed == at:
                w.first_unflushed = -1
            return
        w.records += 1
        w.last_timestamp = v.store_timestamp
        if w.first_unqueued < 0 and v.store_timestamp > queued_until:
            w.first_unqueued = at
        at += v.size


def scan_bytes(const unsigned char[::1] data not None, int64_t start, int64_t begin, *, int64_t queued_until=INT64_MAX,
               int64_t flushed_until=INT64_MAX, int64_t flushed_end=INT64_MAX, bint torn=True, bint check_crc=True,
               bint crc_property=False):
    """LogRecovery.scan of a file that the caller has mapped, or read: `data` is all of it, and begins at log offset `start`."""
    cdef LogFile f
    cdef ScanState w
    if not start <= begin <= start + data.shape[0]:
        raise ValueError(f"{begin} is not in [{start}, {start + data.shape[0]}]")
    f.start, f.size = start, data.shape[0]
    f.map = NULL if f.size == 0 else <unsigned char *> &data[0]
    with nogil:
        _walk(&f, begin, INT64_MAX, queued_until, flushed_until, flushed_end, torn, check_crc, crc_property, &w)
    return Scan(w.end, REASONS[w.reason], w.records, w.last_timestamp, w.first_unqueued, w.first_unflushed)


cdef int64_t scan_next_good(const LogFile *f, int64_t begin, int64_t stop, bint crc_property) noexcept nogil:
    # The first offset in [begin, stop) where a whole, checked record of exactly this place lies; -1: none.
    cdef int64_t at = begin
    cdef int64_t end = f.start + f.size
    cdef int32_t magic
    cdef RecordView v
    while at < stop and end - at >= RECORD_FIXED_SIZE:
        magic = head_magic(f.map + (at - f.start))
        if magic == MAGIC_V1 or magic == MAGIC_V2:
            if record_parse(f.map + (at - f.start), end - at, &v) == RECORD_OK:
                if _check(&v, at, True, crc_property) == BAD_NOT:
                    return at
        at += 1
    return -1


cdef int64_t _last_nonzero(const rmq_io *io, const LogFile *f, int64_t begin, unsigned char *chunks) noexcept nogil:
    # Log offset behind the last byte >= begin that is not zero; begin: none; -errno. `chunks` has a byte for each CHUNK of the
    # file. Where data may be is asked before any of it is read: reading ahead makes data of holes and unwritten extents.
    cdef int64_t low = begin - f.start
    cdef int64_t last = low
    cdef int64_t at = low
    cdef int64_t i, from_position, end
    while at < f.size:
        at = io.next_data(io.ctx, f.fd, at)
        if at < 0:
            return at
        if at >= f.size:
            break
        chunks[at // CHUNK] = 1
        at = (at // CHUNK + 1) * CHUNK
    for i in range((f.size - 1) // CHUNK, low // CHUNK - 1, -1):
        if not chunks[i]:
            continue
        from_position = i * CHUNK if i * CHUNK > low else low
        end = (i + 1) * CHUNK if (i + 1) * CHUNK < f.size else f.size
        while end > from_position and f.map[end - 1] == 0:
            end -= 1
            while end >= from_position + 8 and rmq_get64(f.map + end - 8) == 0:
                end -= 8
        if end > from_position:
            last = end
            break
    return f.start + last


cdef class LogRecovery:
    """The commit-log files of a store that is being opened. Offsets are log offsets; errors are OSError with the path."""

    cdef void attach(self, IoTable owner, FileRow *row):
        self._owner = owner
        self.io = owner.table
        self.row = row

    cdef LogFile *_file(self, int64_t start) except NULL:
        cdef int error = 0
        cdef LogFile *f = row_find(self.row, start, &error)
        if f == NULL:
            raise OSError(-error, os.strerror(-error) if error else "no such commit-log file", str(start))
        return f

    cdef LogFile *_open(self, int64_t start) except NULL:
        cdef LogFile *f = self._file(start)
        cdef int error = log_file_have_fd(f)
        if error < 0:
            path = os.fsdecode(f.path)
            log_file_release(f)
            raise OSError(-error, os.strerror(-error), path)
        return f

    cdef void _close(self, LogFile *f) noexcept:
        # A log may have more files than a process may have descriptors.
        log_file_drop_fd(self.row, f)
        log_file_release(f)

    def starts(self):
        """Log offsets of the first bytes of the files that are there, ascending: list of int. What is left of a file is not one
        in which a log can end, unless it is the last one."""
        cdef int64_t i, last = self.row.count - 1
        return [self.row.files[i].start for i in range(self.row.count)
                if not self.row.files[i].absent and (i == last or not self.row.files[i].copied)]

    def first_record(self, int64_t start):
        """(magic code, store time in ms) of the first record of the file at `start`, as the matching test reads them."""
        cdef LogFile *f = self._file(start)
        try:
            if f.size < RECORD_TIMED_SIZE:
                return 0, 0
            return head_magic(f.map), head_store_timestamp(f.map)
        finally:
            log_file_release(f)

    def scan(self, int64_t begin, *, int64_t limit=INT64_MAX, int64_t queued_until=INT64_MAX, int64_t flushed_until=INT64_MAX,
             int64_t flushed_end=INT64_MAX, bint torn=True, bint check_crc=True, bint crc_property=False):
        """Walks the file that holds `begin` from there on; never looks at or beyond `limit`. Returns a Scan.

        queued_until, flushed_until: store times in ms; records up to the latter, and below the log offset flushed_end, are
        surely on the device. torn: later ones are
        looked at for parts that never got there."""
        cdef LogFile *f = self._file(begin)
        cdef ScanState w
        with nogil:
            _walk(f, begin, limit, queued_until, flushed_until, flushed_end, torn, check_crc, crc_property, &w)
        log_file_release(f)
        return Scan(w.end, REASONS[w.reason], w.records, w.last_timestamp, w.first_unqueued, w.first_unflushed)

    def file_size(self):
        """Bytes of a file: int."""
        return self.row.file_size

    def next_good(self, int64_t begin, int64_t end):
        """Offset of the first whole, checked record that begins in [begin, end) of one file; None: none."""
        cdef LogFile *f = self._file(begin)
        cdef int64_t at
        with nogil:
            at = scan_next_good(f, begin, end, False)
        log_file_release(f)
        return None if at < 0 else at

    def dirty_end(self, int64_t begin):
        """Log offset behind the last byte at or beyond `begin`, in the file that holds it, that is not zero."""
        cdef LogFile *f = self._open(begin)
        cdef int64_t end
        chunks = bytearray(f.size // CHUNK + 1)
        cdef unsigned char *marks = chunks
        with nogil:
            end = _last_nonzero(self.io, f, begin, marks)
        path = os.fsdecode(f.path)
        self._close(f)
        if end < 0:
            raise OSError(-end, os.strerror(-end), path)
        return end

    def read(self, int64_t begin, int64_t end):
        """Bytes [begin, end) of the file that holds begin (salvage)."""
        cdef LogFile *f = self._file(begin)
        try:
            end = min(end, f.start + f.size)
            return (<const char *> f.map)[begin - f.start:end - f.start]
        finally:
            log_file_release(f)

    def next_data(self, int64_t begin, int64_t end):
        """The first log offset in [begin, end) of one file that is in no hole; `end` where there is none."""
        cdef LogFile *f = self._open(begin)
        cdef int64_t at = self.io.next_data(self.io.ctx, f.fd, begin - f.start)
        path, at = os.fsdecode(f.path), at + f.start if at >= 0 else at
        self._close(f)
        if at < 0:
            raise OSError(-at, os.strerror(-at), path)
        return min(at, end)

    def rewrite(self, int64_t begin, int64_t end):
        """Writes [begin, end) of one file over itself and syncs it: after a crash the page cache may show what is not there."""
        cdef LogFile *f = self._open(begin)
        cdef int rc
        with nogil:
            rc = rmq_pwrite_all(self.io, f.fd, f.map + (begin - f.start), end - begin, begin - f.start)
            if rc >= 0:
                rc = self.io.fdatasync(self.io.ctx, f.fd)
        path = os.fsdecode(f.path)
        self._close(f)
        if rc < 0:
            raise OSError(-rc, os.strerror(-rc), path)

    def zero(self, int64_t begin, int64_t end):
        """Zeroes [begin, end) of one file and syncs it."""
        cdef LogFile *f = self._open(begin)
        cdef int64_t at = begin
        cdef int64_t n
        cdef int rc = 0
        zeros = bytes(CHUNK)
        cdef const char *data = zeros
        with nogil:
            while at < end and rc >= 0:
                n = end - at if end - at < CHUNK else CHUNK
                rc = rmq_pwrite_all(self.io, f.fd, data, n, at - f.start)
                at += n
            if rc >= 0:
                rc = self.io.fdatasync(self.io.ctx, f.fd)
        path = os.fsdecode(f.path)
        self._close(f)
        if rc < 0:
            raise OSError(-rc, os.strerror(-rc), path)

    def drop_last(self):
        """Deletes the newest file and syncs the directory."""
        cdef LogFile *f = row_pop(self.row)
        cdef int rc
        rc = self.io.unlink(self.io.ctx, f.path)
        if rc >= 0:
            rc = log_file_sync_dir(f)
        path = os.fsdecode(f.path)
        log_file_release(f)
        if rc < 0:
            raise OSError(-rc, os.strerror(-rc), path)
