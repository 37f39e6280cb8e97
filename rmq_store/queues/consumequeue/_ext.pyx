"""Ext units (RocketMQ: ConsumeQueueExt). Contract in _ext.pxd."""
from libc.stdint cimport int16_t, int64_t
from libc.string cimport memcpy

from rmq_store.base.io._sync cimport ENOENT, rmq_load, rmq_publish
from rmq_store.codec._layout cimport (EXT_AT_BIT_MAP_SIZE, EXT_AT_SIZE, EXT_AT_STORE_TIMESTAMP, EXT_AT_TAGS_CODE,
                                      EXT_END_OF_FILE, EXT_END_SIZE, EXT_UNIT_SIZE_MIN)
from rmq_store.codec._record cimport rmq_get16, rmq_get64, rmq_put16, rmq_put64
from rmq_store.codec._unit cimport ext_address, ext_offset, is_ext_address
from rmq_store.queues.consumequeue._descriptors cimport FileCache, UnitFiles
from rmq_store.queues.consumequeue._files cimport BUFFER_SIZE, files_cut, files_drop_first, files_flush, files_grow, files_read

cdef enum:
    WALK_SIZE = 8192

# Addresses beyond this would be taken for tags codes.
cdef int64_t OFFSET_MAX = 9223372034707292159


cdef int _close_file(FileCache *c, UnitFiles *f) noexcept nogil:
    # fullFillToEnd: the mark behind the last unit, then the next file. Done again after a failure it writes the same bytes.
    cdef int rc = files_flush(c, f)
    if rc >= 0 and f.end - f.written >= 2:      # less only where a foreign unit broke the rule
        rmq_put16(f.buffer, EXT_END_OF_FILE)
        f.used = 2
        rc = files_flush(c, f)
        f.used = 0
    if rc >= 0:
        rmq_publish(&f.written, f.end)
    return rc


cdef int ext_put(FileCache *c, UnitFiles *f, int64_t tags_code, int64_t store_timestamp, const unsigned char *bit_map, int size,
                 int64_t *address) noexcept nogil:
    cdef int64_t at = f.written + f.used
    cdef int unit = EXT_UNIT_SIZE_MIN + size
    cdef unsigned char *u
    cdef int rc
    if at + unit > OFFSET_MAX or f.file_size < unit + EXT_END_SIZE or unit > BUFFER_SIZE:
        return 0
    if f.end > f.first and at < f.end and unit > f.end - at - EXT_END_SIZE:
        rc = _close_file(c, f)
        if rc < 0:
            return rc
        at = f.written
    if f.end == f.first or at == f.end:
        if f.used > 0:
            rc = files_flush(c, f)
            if rc < 0:
                return rc
        if f.end == f.first:
            rmq_publish(&f.first, 0)
            rmq_publish(&f.end, 0)
            rmq_publish(&f.written, 0)
            rmq_publish(&f.synced, 0)
            at = 0
        rc = files_grow(c, f)
        if rc < 0:
            return rc
    if f.used + unit > BUFFER_SIZE:
        rc = files_flush(c, f)
        if rc < 0:
            return rc
    u = f.buffer + f.used
    rmq_put16(u + EXT_AT_SIZE, <int16_t> unit)
    rmq_put64(u + EXT_AT_TAGS_CODE, tags_code)
    rmq_put64(u + EXT_AT_STORE_TIMESTAMP, store_timestamp)
    rmq_put16(u + EXT_AT_BIT_MAP_SIZE, <int16_t> size)
    if size > 0:
        memcpy(u + EXT_UNIT_SIZE_MIN, bit_map, size)
    f.used += unit
    address[0] = ext_address(at)
    return 0


cdef int64_t ext_read(FileCache *c, UnitFiles *f, int64_t address, int64_t *tags_code, int64_t *store_timestamp,
                      unsigned char *bit_map, int64_t bit_map_max) noexcept nogil:
    cdef unsigned char[EXT_UNIT_SIZE_MIN] head
    cdef int64_t offset, got, n
    cdef int16_t size
    if not is_ext_address(address):
        return -ENOENT
    offset = ext_offset(address)
    got = files_read(c, f, head, EXT_UNIT_SIZE_MIN, offset)
    if got < 0:
        return got
    size = rmq_get16(head) if got == EXT_UNIT_SIZE_MIN else 0
    if size < 1:
        return -ENOENT
    tags_code[0] = rmq_get64(head + EXT_AT_TAGS_CODE)
    store_timestamp[0] = rmq_get64(head + EXT_AT_STORE_TIMESTAMP)
    n = rmq_get16(head + EXT_AT_BIT_MAP_SIZE)
    if n < 1:
        return 0
    if EXT_UNIT_SIZE_MIN + n > size or offset % f.file_size + size > f.file_size:
        return -ENOENT
    if n < bit_map_max:
        bit_map_max = n
    if bit_map_max > 0:
        got = files_read(c, f, bit_map, bit_map_max, offset + EXT_UNIT_SIZE_MIN)
        if got < bit_map_max:
            return got if got < 0 else -ENOENT
    return n


cdef int64_t _fill(FileCache *c, UnitFiles *f, ExtWindow *w, int64_t offset) noexcept nogil:
    # Reads on from the unit at `offset`. What lay behind `written` may be half written: of that only this unit is sure, as an
    # entry leads to it. -ENOENT: there is none.
    cdef int64_t sure = rmq_load(&f.written) - offset
    cdef int64_t got = files_read(c, f, w.data, EXT_WINDOW_SIZE, offset)
    w.at = offset
    w.size = 0
    if got < EXT_UNIT_SIZE_MIN:
        return got if got < 0 else -ENOENT
    sure = max(sure, <int64_t> EXT_UNIT_SIZE_MIN, <int64_t> rmq_get16(w.data))
    w.size = sure if sure < got else got
    return 0


cdef int64_t ext_look(FileCache *c, UnitFiles *f, ExtWindow *w, int64_t address, int64_t *tags_code, int64_t *store_timestamp,
                      const unsigned char **bit_map) noexcept nogil:
    cdef int64_t offset, rc, size, n
    cdef const unsigned char *unit
    if not is_ext_address(address):
        return -ENOENT
    offset = ext_offset(address)
    unit = w.data + (offset - w.at)
    if offset < w.at or w.at + w.size - offset < EXT_UNIT_SIZE_MIN or w.at + w.size - offset < rmq_get16(unit):
        rc = _fill(c, f, w, offset)
        if rc < 0:
            return rc
        unit = w.data
    size = rmq_get16(unit)
    if size < 1 or w.at + w.size - offset < EXT_UNIT_SIZE_MIN:
        return -ENOENT
    tags_code[0] = rmq_get64(unit + EXT_AT_TAGS_CODE)
    store_timestamp[0] = rmq_get64(unit + EXT_AT_STORE_TIMESTAMP)
    n = rmq_get16(unit + EXT_AT_BIT_MAP_SIZE)
    if n < 1:
        return 0
    if EXT_UNIT_SIZE_MIN + n > size or offset % f.file_size + size > f.file_size:
        return -ENOENT
    bit_map[0] = unit + EXT_UNIT_SIZE_MIN if EXT_UNIT_SIZE_MIN + n <= w.at + w.size - offset else NULL
    return n


cdef int64_t _unit_end(FileCache *c, UnitFiles *f, int64_t address) noexcept nogil:
    # Behind the unit at `address`; 0: there is none.
    cdef unsigned char[2] head
    cdef int64_t offset = ext_offset(address), got
    got = files_read(c, f, head, 2, offset)
    if got < 0:
        return got
    if got < 2 or rmq_get16(head) < 1 or offset % f.file_size + rmq_get16(head) > f.file_size:
        return 0
    return offset + rmq_get16(head)


cdef int64_t _walk(FileCache *c, UnitFiles *f) noexcept nogil:
    # ConsumeQueueExt.recover: unit by unit through every file; the end in the last one.
    cdef unsigned char[WALK_SIZE] block
    cdef int64_t start = f.first, at = f.first, from_offset = -1, got = 0
    while start < f.end:
        at = start
        while at + 2 <= start + f.file_size:
            if not (from_offset <= at and at + 2 <= from_offset + got):
                from_offset = at
                got = files_read(c, f, block, WALK_SIZE, at)
                if got < 2:
                    if got < 0:
                        return got
                    break
            if rmq_get16(block + (at - from_offset)) < 1:
                break
            at += rmq_get16(block + (at - from_offset))
        if at > start + f.file_size:        # a size that leads out of the file: RocketMQ fails to load it
            at = start + f.file_size
        start += f.file_size
    return at


cdef int ext_recover(FileCache *c, UnitFiles *f, int64_t address, bint zero, bint write) noexcept nogil:
    cdef int64_t end = 0
    if f.first == f.end:
        return 0
    if is_ext_address(address):
        end = _unit_end(c, f, address)
    if end == 0:
        end = _walk(c, f)
    if end < 0:
        return <int> end
    if write:
        return files_cut(c, f, end, zero, True)
    rmq_publish(&f.written, end)
    return 0


cdef int ext_drop_before(FileCache *c, UnitFiles *f, int64_t address) noexcept nogil:
    cdef int64_t offset = ext_offset(address)
    cdef int rc = 0
    if not is_ext_address(address):
        return 0
    # What is not synced yet stays: the thread that syncs may be about to open it.
    while (rc >= 0 and rmq_load(&f.end) - f.first > f.file_size and f.first + f.file_size < offset
           and f.first + f.file_size <= rmq_load(&f.synced)):
        rc = files_drop_first(c, f)
        if rc >= 0:
            rc = c.io.sync_dir(c.io.ctx, f.dir)
    return rc
