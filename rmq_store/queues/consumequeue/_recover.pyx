"""Recovery of one queue (RocketMQ: recover, truncateDirtyLogicFiles, correctMinOffset). Contract in _recover.pxd.

Three departures from RocketMQ. Two are about bytes that no reader should ever meet again. RocketMQ cuts by moving positions and
leaves what lies behind on the disk, where the next recovery can walk into it: here it is zeroed. And RocketMQ keeps the first
entry of a file in truncation even if it is zeros: here zeros are no entry. The third: RocketMQ walks the last three files of a
queue. Entries are on the device only where a checkpoint says so, so any number of files may have a hole: here the walk begins
with the last file whose first entry is known to be safe.
"""
from libc.stdint cimport INT64_MAX, int32_t, int64_t
from libc.string cimport memcpy, memset

from rmq_store.base.io._sync cimport EIO, rmq_load, rmq_publish
from rmq_store.codec._layout cimport UNIT_SIZE
from rmq_store.codec._record cimport topic_light
from rmq_store.codec._unit cimport is_ext_address, unit_blank, unit_bytes, unit_code, unit_physical, unit_valid
from rmq_store.queues.consumequeue._descriptors cimport UnitFiles
from rmq_store.queues.consumequeue._ext cimport ext_drop_before, ext_recover
from rmq_store.queues.consumequeue._files cimport files_cut, files_drop_first, files_next_data, files_read
from rmq_store.queues.consumequeue._state cimport QueueState, TableState
from rmq_store.queues.consumequeue._structs cimport Queue

cdef enum:
    BLOCK_SIZE = 8160               # of one read while walking
    PAGE = 4096
    FILES_HALVED = 3                # after a stop in order
    BLOCKS_BEHIND = 8
    RIGHT_BEFORE = 32
    SECTOR = 512                    # what a device writes whole or not at all

cdef struct End:
    int64_t position                # behind the last valid entry
    int64_t physical                # end of the record of the last real one, -1: none
    int64_t ext_address             # of the last entry that has one, 1: none
    int64_t before                  # end of the record of the real one before the last, -1: none


cdef struct Window:
    int64_t start                   # of the file whose first page it has; -1: it has none
    bint hollow                     # nothing but a hole is behind that page
    unsigned char[PAGE + UNIT_SIZE] bytes


cdef inline void _end_behind(End *end, const unsigned char *u) noexcept nogil:     # u: the last real entry so far
    end.physical = unit_physical(u) + unit_bytes(u)
    # A lost sector may have had the lower half of an address: then it is none behind the one before.
    cdef int64_t code = unit_code(u)
    if is_ext_address(code) and (<int32_t> code != 0 or (is_ext_address(end.ext_address) and code > end.ext_address)):
        end.ext_address = code


cdef int _read(TableState *t, UnitFiles *f, unsigned char *u, int64_t position) noexcept nogil:
    cdef int64_t got = files_read(t.cache, f, u, UNIT_SIZE, position)
    if got < 0:
        return <int> got
    return 0 if got == UNIT_SIZE else -EIO      # the file is shorter than its length


cdef int _look(TableState *t, UnitFiles *f, Window *w, int64_t start) noexcept nogil:
    # Reads the first page of a file, and asks whether anything is behind it: of most queues of a store with many that is the
    # whole file, and where its entries end needs no more calls then. What it cannot tell is read unit by unit.
    cdef int64_t got, data
    w.start = -1
    w.hollow = False
    if start < f.first or start + f.file_size > f.end:
        return 0
    got = files_read(t.cache, f, w.bytes, PAGE, start)
    if got < 0:
        return <int> got
    if got < PAGE:
        return 0
    memset(w.bytes + PAGE, 0, UNIT_SIZE)
    if f.file_size > PAGE:
        data = files_next_data(t.cache, f, start + PAGE)
        if data < 0:
            return <int> data
        w.hollow = data >= start + f.file_size
    w.start = start
    return 0


cdef int _unit(TableState *t, UnitFiles *f, const Window *w, unsigned char *u, int64_t position) noexcept nogil:
    cdef int64_t at = position - w.start
    if w.start < 0 or not 0 <= at < f.file_size or (at > PAGE - UNIT_SIZE and not w.hollow):
        return _read(t, f, u, position)
    if at < PAGE:
        memcpy(u, w.bytes + at, UNIT_SIZE)
    else:
        memset(u, 0, UNIT_SIZE)
    return 0


cdef inline bint _leads_back(const unsigned char *u, int64_t physical) noexcept nogil:
    # One record may have several entries in a row: in the places of others that are lost (_entries.pyx).
    return unit_physical(u) < physical and unit_physical(u) + unit_bytes(u) != physical


cdef int _walk(TableState *t, UnitFiles *f, int64_t position, int64_t stop, int64_t below, bint ordered,
               End *out) noexcept nogil:
    # Unit by unit from `position`, until one is not valid, leads back (ordered), or its record ends beyond `below`, if not -1.
    cdef unsigned char[BLOCK_SIZE] block
    cdef const unsigned char *u
    cdef int64_t got, i
    while position < stop:
        got = files_read(t.cache, f, block, BLOCK_SIZE if stop - position > BLOCK_SIZE else stop - position, position)
        if got < UNIT_SIZE:
            return <int> got if got < 0 else -EIO
        for i in range(got // UNIT_SIZE):
            u = block + i * UNIT_SIZE
            if not unit_valid(u) or (not unit_blank(u) and ((ordered and _leads_back(u, out.physical)) or (
                    below >= 0 and unit_physical(u) > below - unit_bytes(u)))):
                out.position = position + i * UNIT_SIZE
                return 0
            if not unit_blank(u):
                out.before = out.physical
                _end_behind(out, u)
        position += got // UNIT_SIZE * UNIT_SIZE
    out.position = position
    return 0


cdef int _bisect(TableState *t, UnitFiles *f, Window *w, int64_t start, End *out) noexcept nogil:
    # After a clean stop entries have no gap between them: full files first, then one whose end is found by halving.
    cdef unsigned char[UNIT_SIZE] u
    cdef int64_t low, high, middle
    cdef int rc
    cdef bint full
    while True:
        low = 0
        high = f.file_size // UNIT_SIZE - 1
        rc = _look(t, f, w, start)
        if rc >= 0:
            rc = _unit(t, f, w, u, start + high * UNIT_SIZE)
        if rc < 0:
            return rc
        full = unit_valid(u)
        if full and high > 0:       # one that rotted alone, at the end of a file with room, says nothing
            rc = _unit(t, f, w, u, start + (high - 1) * UNIT_SIZE)
            if rc < 0:
                return rc
            full = unit_valid(u)
        if full:
            start += f.file_size
            if start < f.end:
                continue
            high = 0
        break
    while low < high:
        middle = (low + high) // 2
        rc = _unit(t, f, w, u, start + middle * UNIT_SIZE)
        if rc < 0:
            return rc
        if unit_valid(u):
            low = middle + 1
        else:
            high = middle
    out.position = start + low * UNIT_SIZE
    if out.position == f.first:
        return 0
    rc = _unit(t, f, w, u, out.position - UNIT_SIZE)
    if rc < 0:
        return rc
    if not unit_blank(u):
        _end_behind(out, u)
    return 0


cdef int64_t _first_at(TableState *t, UnitFiles *f, int64_t low, int64_t high, int64_t physical) noexcept nogil:
    # Index of the first entry in [low, high) whose record is at or beyond `physical`; fillers are before every record.
    cdef unsigned char[UNIT_SIZE] u
    cdef int64_t middle
    cdef int rc
    while low < high:
        middle = (low + high) // 2
        rc = _read(t, f, u, middle * UNIT_SIZE)
        if rc < 0:
            return rc
        if unit_blank(u) or unit_physical(u) < physical:
            low = middle + 1
        else:
            high = middle
    return low


cdef int64_t _before(TableState *t, UnitFiles *f, int64_t low, int64_t high, int64_t physical) noexcept nogil:
    # As _first_at, which a rotten entry may have led too far: while the entries right before lead to what is there, back.
    cdef unsigned char[RIGHT_BEFORE * UNIT_SIZE] units
    cdef const unsigned char *u
    cdef int64_t begin, i, got, found = high
    while found > low:
        begin = found - (found - 1) % (f.file_size // UNIT_SIZE) - 1        # of its file: one read is within one
        begin = max(low, begin, found - RIGHT_BEFORE)
        got = files_read(t.cache, f, units, (found - begin) * UNIT_SIZE, begin * UNIT_SIZE)
        if got < 0:
            return got
        high = found
        for i in range(got // UNIT_SIZE):
            u = units + i * UNIT_SIZE
            if unit_valid(u) and not unit_blank(u) and unit_physical(u) >= physical:
                found = begin + i
                break
        if found == high:
            break
    return found


cdef void _set_end(Queue *q, QueueState *s, const End *end) noexcept nogil:
    s.entries.used = 0
    s.ext.used = 0
    s.limit = 0
    s.new_min = -1
    s.blank_to = 0
    s.next_index = end.position // UNIT_SIZE
    q.max_physical_offset = end.physical
    q.next_offset = s.next_index
    rmq_publish(&q.max_offset, s.next_index)


cdef int _spoilt(TableState *t, UnitFiles *f, const Window *w, int64_t position) noexcept nogil:
    # 1 where a stop in order cannot have left this end: something stands behind it. Not all of a file is looked at, as one that
    # was copied has no holes.
    cdef unsigned char[BLOCK_SIZE] block
    cdef int64_t stop = position + BLOCKS_BEHIND * BLOCK_SIZE
    cdef int64_t got, i
    if position <= f.end - f.file_size and not 0 < f.first == f.end - f.file_size:      # kept for its name (recover_cut)
        return 1
    if w.hollow and w.start == f.end - f.file_size:
        i = position - w.start
        while i < PAGE and w.bytes[i] == 0:
            i += 1
        return i < PAGE
    while position < f.end and position < stop:
        position = files_next_data(t.cache, f, position)
        if position < 0:
            return <int> position
        got = files_read(t.cache, f, block, BLOCK_SIZE, position)
        if got < 0:
            return <int> got
        for i in range(got):
            if block[i] != 0:
                return 1
        position += got if got > 0 else BLOCK_SIZE
    return 0


cdef int64_t _safe_file(TableState *t, UnitFiles *f, int64_t safe) noexcept nogil:
    # Start of the last file whose first entry leads below `safe`; the first file where there is none. The first entry of a
    # file lies in one sector: it is whole, or it is zeros.
    cdef unsigned char[UNIT_SIZE] u
    cdef int64_t start = f.end - f.file_size
    cdef int rc
    while start > f.first:
        rc = _read(t, f, u, start)
        if rc < 0:
            return rc
        if unit_valid(u) and unit_physical(u) < safe:
            break
        start -= f.file_size
    return start


cdef int _rotten(TableState *t, UnitFiles *f, int64_t position) noexcept nogil:
    # 1 where the unit there is no zeros, and no entry that lacks the sector which holds its beginning or its end; 0; -errno.
    cdef unsigned char[UNIT_SIZE] u
    cdef int64_t edge = SECTOR - position % SECTOR      # bytes of it in its first sector
    cdef int64_t i, before = 0, behind = 0
    cdef int rc = _read(t, f, u, position)
    if rc < 0:
        return rc
    for i in range(UNIT_SIZE):
        if u[i] != 0:
            before += i < edge
            behind += i >= edge
    return before > 0 and (behind > 0 or edge >= UNIT_SIZE)


cdef int _safe_entry_behind(TableState *t, UnitFiles *f, int64_t position, int64_t safe, const End *end) noexcept nogil:
    # 1 where an entry that must be on the device stands behind the end that was found, in the same file: that end is damage, or
    # the entry before it, which leads too far. (A torn one leads lower, or to 0, where only a queue's first one leads.) And 1
    # where what stands right there is neither an entry nor what a power cut leaves of one.
    cdef unsigned char[BLOCK_SIZE] block
    cdef const unsigned char *u
    cdef int64_t stop = position - position % f.file_size + f.file_size
    cdef int64_t got, i
    cdef int rc = _rotten(t, f, position)
    if rc != 0:
        return rc
    while position < stop:
        got = files_next_data(t.cache, f, position)
        if got < 0:
            return <int> got
        position = got - got % UNIT_SIZE
        if position >= stop:
            break
        got = files_read(t.cache, f, block, BLOCK_SIZE if stop - position > BLOCK_SIZE else stop - position, position)
        if got < UNIT_SIZE:
            return <int> got if got < 0 else -EIO
        for i in range(got // UNIT_SIZE):
            u = block + i * UNIT_SIZE
            if unit_valid(u) and not unit_blank(u) and max(end.before, 1) <= unit_physical(u) < safe:
                return 1
        position += got // UNIT_SIZE * UNIT_SIZE
    return 0


cdef int _find_after_crash(TableState *t, UnitFiles *f, int64_t safe, End *end) noexcept nogil:
    cdef int64_t start = _safe_file(t, f, safe)
    cdef int rc
    if start < 0:
        return <int> start
    rc = _walk(t, f, start, f.end, -1, safe < INT64_MAX, end)
    f.synced = start            # what lies behind is only known to be in the page cache: it is synced with what comes next
    if rc < 0 or end.position == f.end:
        return rc
    return _safe_entry_behind(t, f, end.position, safe, end)


cdef int _last_valid(TableState *t, UnitFiles *f, int64_t below, End *end) noexcept nogil:
    # Of a light queue, which nobody fills again: its end is behind the last entry whose record ends at or before `below`, -1:
    # wherever, at or behind the end that was found; what is damaged before it is passed over by who reads.
    cdef unsigned char[BLOCK_SIZE] block
    cdef const unsigned char *u
    cdef int64_t position = end.position, got, i, stop
    while position < f.end:
        got = files_next_data(t.cache, f, position)
        if got < 0:
            return <int> got
        position = got - got % UNIT_SIZE
        if position >= f.end:
            break
        stop = position - position % f.file_size + f.file_size
        got = files_read(t.cache, f, block, BLOCK_SIZE if stop - position > BLOCK_SIZE else stop - position, position)
        if got < UNIT_SIZE:
            return <int> got if got < 0 else -EIO
        for i in range(got // UNIT_SIZE):
            u = block + i * UNIT_SIZE
            if (unit_valid(u) and not unit_blank(u) and unit_physical(u) > 0
                    and (below < 0 or unit_physical(u) <= below - unit_bytes(u))):
                end.position = position + (i + 1) * UNIT_SIZE
                _end_behind(end, u)
        position += got // UNIT_SIZE * UNIT_SIZE
    return 0


cdef int _find_after_stop(TableState *t, UnitFiles *f, Window *w, bint with_ext, End *end) noexcept nogil:
    cdef int64_t start = f.end - FILES_HALVED * f.file_size
    cdef End walked = End(0, -1, 1, -1)
    cdef int rc
    if start < f.first:
        start = f.first
    rc = _bisect(t, f, w, start, end)
    if rc >= 0 and with_ext and end.ext_address == 1:
        rc = _walk(t, f, start, end.position, -1, False, &walked)
        end.ext_address = walked.ext_address
    f.synced = end.position
    return rc if rc < 0 else _spoilt(t, f, w, end.position)


cdef int _first_real(TableState *t, UnitFiles *f, const Window *w, const End *end, int64_t *out) noexcept nogil:
    # Queue offset of the first entry that is no filler.
    cdef unsigned char[UNIT_SIZE] u
    cdef int rc
    out[0] = f.first // UNIT_SIZE
    if end.position <= f.first:
        return 0
    rc = _unit(t, f, w, u, f.first)
    if rc >= 0 and unit_blank(u):
        out[0] = _first_at(t, f, out[0], end.position // UNIT_SIZE, 0)
        rc = <int> out[0] if out[0] < 0 else 0
    return rc


cdef int _leads_there(TableState *t, UnitFiles *f, int64_t low, int64_t index, int64_t physical) noexcept nogil:
    # 1 where one of the last entries before `index`, none before `low`, leads to `physical` or beyond; 0; -errno.
    cdef unsigned char[UNIT_SIZE] u
    cdef int64_t stop = max(low, index - RIGHT_BEFORE)
    cdef int rc
    while index > stop:
        index -= 1
        rc = _read(t, f, u, index * UNIT_SIZE)
        if rc < 0:
            return rc
        if unit_valid(u) and not unit_blank(u) and unit_physical(u) >= physical:
            return 1
    return 0


cdef int _falls_back(TableState *t, UnitFiles *f, const Window *w, const End *end) noexcept nogil:
    # 1 where the last entry leads in front of the log and one right before it does not: it is damage; 0; -errno.
    cdef unsigned char[UNIT_SIZE] u
    cdef int rc
    if end.physical < 0 or end.position <= f.first:
        return 0
    rc = _unit(t, f, w, u, end.position - UNIT_SIZE)
    if rc < 0 or unit_blank(u) or unit_physical(u) >= t.log_begin:
        return rc
    return _leads_there(t, f, f.first // UNIT_SIZE, end.position // UNIT_SIZE - 1, t.log_begin)


cdef int recover_find(TableState *t, Queue *q, QueueState *s, int64_t safe) noexcept nogil:
    cdef UnitFiles *f = &s.entries
    cdef End end = End(0, -1, 1, -1)
    cdef Window w
    cdef int64_t first = 0
    cdef int spoilt, rc
    w.start = -1
    w.hollow = False
    if f.first == f.end:
        _set_end(q, s, &end)
        rmq_publish(&q.min_offset, 0)
        return 0
    spoilt = _find_after_stop(t, f, &w, t.ext_file_size > 0, &end) if safe < 0 else _find_after_crash(t, f, safe, &end)
    if topic_light(q.topic, q.topic_size) and (spoilt == 1 or (spoilt == 0 and safe >= 0)):
        spoilt = _last_valid(t, f, -1, &end)
    elif spoilt == 0:
        spoilt = _falls_back(t, f, &w, &end)
    if spoilt < 0:
        return spoilt
    rc = _first_real(t, f, &w, &end, &first)
    if rc >= 0 and t.ext_file_size > 0:
        rc = ext_recover(t.cache, &s.ext, end.ext_address, False, False)
    if rc < 0:
        return rc
    s.ext.synced = s.ext.first if safe >= 0 else s.ext.written
    rmq_publish(&f.written, end.position)
    _set_end(q, s, &end)
    rmq_publish(&q.min_offset, first)
    return spoilt


cdef int recover_back(TableState *t, Queue *q, QueueState *s, int64_t index) noexcept nogil:
    cdef UnitFiles *f = &s.entries
    cdef unsigned char[UNIT_SIZE] u
    cdef End end = End(index * UNIT_SIZE, -1, 1, -1)
    cdef int rc
    if end.position > f.first:
        rc = _read(t, f, u, end.position - UNIT_SIZE)
        if rc < 0:
            return rc
        if not unit_blank(u):
            _end_behind(&end, u)
    if t.ext_file_size > 0:
        rc = ext_recover(t.cache, &s.ext, end.ext_address, False, False)
        if rc < 0:
            return rc
    if f.synced > end.position:
        f.synced = end.position
    rmq_publish(&f.written, end.position)
    _set_end(q, s, &end)
    if q.min_offset > index:
        rmq_publish(&q.min_offset, index)
    return 0


cdef int recover_truncate(TableState *t, Queue *q, QueueState *s, int64_t physical) noexcept nogil:
    cdef UnitFiles *f = &s.entries
    cdef unsigned char[UNIT_SIZE] u
    cdef End end
    cdef int64_t limit = s.next_index * UNIT_SIZE
    cdef int64_t start = f.end - f.file_size
    cdef int rc = 0
    if f.first == f.end:
        end = End(0, -1, 1, -1)
        _set_end(q, s, &end)
        rmq_publish(&q.min_offset, 0)
        return 0
    # The last file that begins with an entry to keep; later ones go.
    while start >= f.first:
        if start < limit:
            rc = _read(t, f, u, start)
            if rc < 0:
                return rc
            if unit_valid(u) and unit_physical(u) < physical:
                break
        start -= f.file_size
    end = End(f.first, -1, 1, -1)
    if start >= f.first:
        rc = _walk(t, f, start, limit if limit < start + f.file_size else start + f.file_size, physical, True, &end)
        if rc >= 0 and topic_light(q.topic, q.topic_size):
            rc = _last_valid(t, f, physical, &end)
        if rc < 0:
            return rc
    if not t.readonly and end.position != limit:
        # Positions go first: nobody reads what is about to vanish.
        rmq_publish(&q.max_offset, end.position // UNIT_SIZE)
        rc = files_cut(t.cache, f, end.position, UNIT_SIZE, f.first > 0)
        if rc >= 0 and t.ext_file_size > 0:
            if end.position == f.first:
                rc = files_cut(t.cache, &s.ext, s.ext.first, 1, False)
            elif is_ext_address(end.ext_address):
                rc = ext_recover(t.cache, &s.ext, end.ext_address, True, True)
        if rc < 0:
            return rc
    _set_end(q, s, &end)
    if q.min_offset > s.next_index:
        rmq_publish(&q.min_offset, s.next_index)
    return 0


cdef int recover_min(TableState *t, Queue *q, QueueState *s, int64_t physical_min) noexcept nogil:
    cdef UnitFiles *f = &s.entries
    cdef unsigned char[UNIT_SIZE] u
    cdef int64_t end = rmq_load(&q.max_offset)
    cdef int64_t low = rmq_load(&f.first) // UNIT_SIZE
    cdef int64_t found
    cdef int rc
    if low < q.min_offset:
        low = q.min_offset
    if low >= end:
        return 0
    rc = _read(t, f, u, (end - 1) * UNIT_SIZE)
    if rc < 0:
        return rc
    if unit_blank(u) or unit_physical(u) < physical_min:
        rc = 0 if unit_blank(u) else _leads_there(t, f, low, end - 1, physical_min)
        if rc == 0:
            rmq_publish(&q.min_offset, end)       # 5.x: the queue counts as empty and keeps its offset
        if rc <= 0:
            return rc
    found = _first_at(t, f, low, end, physical_min)
    if found >= 0:
        found = _before(t, f, low, found, physical_min)
    if found < 0:
        return <int> found
    rmq_publish(&q.min_offset, found)
    if t.ext_file_size == 0 or t.readonly:
        return 0
    rc = _read(t, f, u, found * UNIT_SIZE)
    return rc if rc < 0 else ext_drop_before(t.cache, &s.ext, unit_code(u))


cdef int recover_drop(TableState *t, Queue *q, QueueState *s, int64_t physical_min) noexcept nogil:
    # deleteExpiredFileByOffset. The first entry that may be read moves before the file goes; what is not synced yet stays, as
    # the thread that syncs may be about to open it.
    cdef UnitFiles *f = &s.entries
    cdef unsigned char[UNIT_SIZE] u
    cdef int64_t behind
    cdef int dropped = 0
    cdef int rc = recover_min(t, q, s, physical_min)
    while rc >= 0:
        behind = rmq_load(&f.first) + f.file_size
        if (behind >= rmq_load(&f.end) or behind > rmq_load(&q.min_offset) * UNIT_SIZE or behind > rmq_load(&f.synced)):
            break
        rc = _read(t, f, u, behind - UNIT_SIZE)
        if rc < 0 or (not unit_blank(u) and unit_physical(u) >= physical_min):
            break
        rc = files_drop_first(t.cache, f)
        if rc >= 0:
            dropped += 1
            rc = t.io.sync_dir(t.io.ctx, f.dir)
    return rc if rc < 0 else dropped
