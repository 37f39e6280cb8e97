"""Entries on their way into the files (RocketMQ: ConsumeQueue.putMessagePositionInfo, flush). Contract in _entries.pxd.

Entries gather in one of a fixed number of small buffers, lent to a queue while it has unwritten entries: a put is twenty bytes
stored, and one write system call pays for a whole buffer. When every buffer is lent, all are written and taken back.
"""
from libc.stdint cimport INT64_MAX, int32_t, int64_t

from rmq_store.base.io._sync cimport (EIO, EROFS, rmq_add, rmq_event_wake, rmq_fence, rmq_load, rmq_load32, rmq_mutex_lock,
                                      rmq_mutex_unlock, rmq_publish, rmq_publish32)
from rmq_store.codec._inner cimport BATCH_UNIT_SIZE, batch_put
from rmq_store.codec._layout cimport RECORD_FIXED_SIZE, UNIT_FILLER, UNIT_SIZE
from rmq_store.codec._record cimport topic_light
from rmq_store.queues.consumequeue._arrivals cimport hubs_note, hubs_signal
from rmq_store.queues.consumequeue._descriptors cimport UnitFiles
from rmq_store.queues.consumequeue._ext cimport ext_put
from rmq_store.queues.consumequeue._files cimport BUFFER_SIZE, files_cut, files_flush, files_grow, files_remove_dirs
from rmq_store.queues.consumequeue._rest cimport HELD_BY_DISPATCH, rest_published
from rmq_store.queues.consumequeue._state cimport (FILLING_BACK, FILLING_NOT, QueueState, TableState, Waiting, entry_append,
                                                   interests_of, marks_of, state_of)
from rmq_store.queues.consumequeue._structs cimport Queue, QueueTable
from rmq_store.queues.consumequeue._table cimport table_at

cdef enum:
    BATCH_BUFFER_SIZE = BUFFER_SIZE // BATCH_UNIT_SIZE * BATCH_UNIT_SIZE


cdef void _give_back(TableState *t, UnitFiles *f) noexcept nogil:
    if f.buffer != NULL and f.used == 0:
        t.free_buffers[t.free_count] = f.buffer
        t.free_count += 1
        f.buffer = NULL


cdef int _flush(TableState *t, QueueState *s) noexcept nogil:
    # Ext units first: no entry leads to a unit that is not there. What could not be written keeps its buffer.
    cdef int rc = 0
    if t.ext_file_size > 0:
        rc = files_flush(t.cache, &s.ext)
    if rc >= 0:
        rc = files_flush(t.cache, &s.entries)
    return rc


cdef int _flush_all(TableState *t) noexcept nogil:
    # Writes every buffer and takes it back; nothing is published. The first error, after every queue had its turn.
    cdef Queue *q = t.dirty
    cdef QueueState *s
    cdef int rc, error = 0
    while q != NULL:
        s = state_of(q)
        rc = _flush(t, s)
        if rc < 0 and error == 0:
            error = rc
        _give_back(t, &s.entries)
        _give_back(t, &s.ext)
        if s.entries.buffer == NULL:
            s.limit = 0
        q = s.next_dirty
    return error


cdef int _lend(TableState *t, UnitFiles *f) noexcept nogil:
    cdef int rc = 0
    if f.buffer != NULL:
        return 0
    if t.free_count == 0:
        rc = _flush_all(t)
        if t.free_count == 0:
            return rc if rc < 0 else -EIO
    t.free_count -= 1
    f.buffer = t.free_buffers[t.free_count]
    f.used = 0
    return 0


cdef int _room(TableState *t, Queue *q, QueueState *s) noexcept nogil:
    # Room for one entry in the buffer: lends it, writes it when full, makes the next file when this one ends.
    cdef UnitFiles *f = &s.entries
    cdef int64_t rest
    cdef int rc
    if s.limit > 0 and f.used < s.limit:
        return 0
    if not s.dirty:
        s.dirty = True
        s.next_dirty = t.dirty
        t.dirty = q
    rc = _flush(t, s)
    if rc < 0:
        return rc
    s.limit = 0
    rc = _lend(t, f)
    if rc >= 0 and f.written == f.end:
        rc = files_grow(t.cache, f)
    if rc < 0:
        return rc
    rest = f.end - f.written
    s.limit = <int> rest if rest < BUFFER_SIZE else BUFFER_SIZE
    return 0


cdef int _batch_room(TableState *t, Queue *q, QueueState *s) noexcept nogil:
    # _room for a unit of a batch queue.
    cdef UnitFiles *f = &s.entries
    cdef int64_t rest
    cdef int rc
    if f.buffer != NULL and f.used < s.batch_limit:
        return 0
    if not s.dirty:
        s.dirty = True
        s.next_dirty = t.dirty
        t.dirty = q
    rc = _flush(t, s)
    if rc >= 0:
        rc = _lend(t, f)
    if rc >= 0 and f.written == f.end:
        rc = files_grow(t.cache, f)
    if rc < 0:
        return rc
    rest = f.end - f.written
    s.batch_limit = <int> rest if rest < BATCH_BUFFER_SIZE else BATCH_BUFFER_SIZE
    return 0


# ---- a queue that was removed

cdef int entries_delete_files(TableState *t, QueueState *s) noexcept nogil:
    # It continues where a call that failed has stopped; never a failed sync.
    cdef int rc = -rmq_load32(&t.cache.sync_failed)
    if rmq_load32(&s.deleting) == 0:
        return 0
    if rc < 0:
        return rc
    rc = files_cut(t.cache, &s.entries, s.entries.first, 0, False)
    if rc >= 0 and s.batched:           # it begins anew in its first file, where followers look
        s.entries.synced = 0
        rmq_publish(&s.entries.written, 0)
        rmq_publish(&s.entries.first, 0)
        rmq_publish(&s.entries.end, 0)
    if rc >= 0:
        rc = files_remove_dirs(t.cache, &s.entries)
    if rc >= 0 and t.ext_file_size > 0:
        rc = files_cut(t.cache, &s.ext, s.ext.first, 0, False)
        if rc >= 0:
            rc = files_remove_dirs(t.cache, &s.ext)
    if rc >= 0:
        rmq_publish32(&s.deleting, 0)
        rmq_add(&t.deletions, -1)
    return rc


cdef int _files_gone(TableState *t, QueueState *s) noexcept nogil:
    # Before the first entry of its new life: its old files would be taken for files of that.
    cdef int rc
    if rmq_load32(&s.deleting) == 0:
        return 0
    rmq_mutex_lock(&t.run_lock)
    rc = entries_delete_files(t, s)
    rmq_mutex_unlock(&t.run_lock)
    return rc


cdef int _put_batch(TableState *t, Queue *q, QueueState *s, int64_t physical, int32_t size, int64_t tags_code,
                    int64_t store_timestamp) noexcept nogil:
    # The unit of a record of a batch topic. As RocketMQ a record that says of no batch which it is gets none.
    cdef int64_t base = t.batch_base
    cdef int rc
    if (t.batch_of != physical or physical < 0 or size <= 0 or base < s.next_index
            or not entries_have_place(t, base + t.batch_count, physical)):
        rmq_add(&t.gaps, 1)
        return 0
    if q.max_physical_offset < 0 and physical < q.removed_below:
        return 0
    if t.filling == FILLING_BACK and base > s.next_index and t.filled_from > t.log_begin:
        # Units before it may be lost: dispatch has to begin further back.
        t.lacking_from = min(t.lacking_from, max(q.max_physical_offset, t.log_begin))
        return 0
    rc = _files_gone(t, s)
    if rc >= 0:
        rc = _batch_room(t, q, s)
    if rc < 0:
        return rc
    if q.max_physical_offset < 0:
        s.new_min = base
    batch_put(s.entries.buffer + s.entries.used, physical, size, tags_code, store_timestamp, base, t.batch_count)
    s.entries.used += BATCH_UNIT_SIZE
    s.next_index = base + t.batch_count
    rmq_publish(&q.max_physical_offset, physical + size)
    return 0


cdef int _begin(TableState *t, Queue *q, QueueState *s, int64_t cq_offset) noexcept nogil:
    # Where the queue has no record yet, its first one decides where the file begins; fillers take the places before it. A
    # crash may have left the file behind without them: then they are due again. It may also have left entries, or a file, that
    # lead to nothing any more: those that followed were never synced, and their records are deleted.
    cdef UnitFiles *f = &s.entries
    cdef int64_t position = cq_offset * UNIT_SIZE
    cdef int64_t start = position - position % f.file_size
    cdef bint of_no_use = t.log_begin > 0 and f.first < f.end and cq_offset > s.next_index
    cdef int rc
    if of_no_use and f.end <= start:
        s.limit = 0
        rc = files_cut(t.cache, f, f.first, 0, False)
        if rc < 0:
            return rc
    if f.first == f.end:
        rmq_publish(&f.first, start)
        rmq_publish(&f.end, start)
        rmq_publish(&f.written, start)
        rmq_publish(&f.synced, start)
        s.next_index = start // UNIT_SIZE
    elif not of_no_use and (f.end - f.first > f.file_size or start != f.first or cq_offset <= s.next_index):
        return 0
    if cq_offset > 0:
        s.blank_to = cq_offset
        s.new_min = cq_offset
    return 0


cdef bint entries_have_place(TableState *t, int64_t cq_offset, int64_t physical) noexcept nogil:
    if 0 <= cq_offset <= INT64_MAX // UNIT_SIZE - t.file_size:
        return True
    t.placeless += 1
    t.placeless_at = physical
    return False


cdef inline bint _begun(const TableState *t, const Queue *q) noexcept nogil:
    # Whether entries that are of use say what the next queue offset is.
    return q.max_physical_offset >= 0 and q.max_physical_offset > t.log_begin


cdef inline bint _follows(const Waiting *a, const Waiting *b) noexcept nogil:
    # Whether both numbers can be right: as many records as would be between them fit in.
    return (b.cq_offset > a.cq_offset
            and b.cq_offset - a.cq_offset - 1 <= (b.physical - a.physical - a.size) // RECORD_FIXED_SIZE)


cdef inline int _enter(TableState *t, Queue *q, QueueState *s, Waiting *w, int64_t cq_offset) noexcept nogil:
    return _put(t, q, s, w.physical, w.size, w.tags_code, w.store_timestamp, cq_offset)


cdef int _begin_right(TableState *t, Queue *q, QueueState *s, const Waiting *next) noexcept nogil:
    # The first records of a queue: two of three whose numbers fit together say where it begins. 1: it has begun; 0: it waits.
    cdef Waiting *a = &s.waiting[0]
    cdef Waiting *b = &s.waiting[1]
    cdef int rc = 0
    if a.size == 0:
        a[0] = next[0]
        return 0
    if next.physical <= (b.physical if b.size > 0 else a.physical):
        return 0                        # a call that failed is repeated
    if not _follows(a, next):
        if b.size == 0 or not _follows(b, next):
            if b.size > 0:
                a[0] = b[0]
            b[0] = next[0]
            return 0
        a[0] = b[0]
        b.size = 0
    rc = _enter(t, q, s, a, a.cq_offset)
    if rc >= 0 and b.size > 0 and next.cq_offset > s.next_index:
        rc = _enter(t, q, s, b, b.cq_offset)
    if rc < 0:
        return rc
    a.size = b.size = 0
    return 1


cdef int _put_waiting(TableState *t, Queue *q, QueueState *s, const Waiting *next) noexcept nogil:
    # `next`: the next record of the queue; NULL: not there yet, or this is the last one, which is believed. Numbers continue
    # behind the one that waits: what would be before it is lost, and its own entry takes those places, too, as a consumer meets
    # nothing worse there than a message twice. They continue below it: its number is wrong; the same place twice would hide the
    # next record, so it gets one only where one is free.
    cdef Waiting *w = &s.waiting[0]
    cdef int64_t lacking = w.cq_offset - s.next_index
    cdef int64_t room = w.physical - q.max_physical_offset
    cdef bint partly = w.physical + w.size == q.max_physical_offset     # by a call that failed
    cdef int rc = 0
    if room >= 0 or partly:
        if partly or ((next == NULL or _follows(w, next)) and lacking <= room // RECORD_FIXED_SIZE
                      and lacking <= t.places_left):
            while rc >= 0 and s.next_index <= w.cq_offset:
                rc = _enter(t, q, s, w, s.next_index)
            if rc >= 0:
                t.places_left -= lacking
        elif next == NULL or next.cq_offset > s.next_index:
            rc = _enter(t, q, s, w, w.cq_offset)
    if rc >= 0:
        w.size = 0
    return rc


cdef int _confirmed(TableState *t, Queue *q, QueueState *s, Waiting record) noexcept nogil:
    # 1: this record may have its entry. 0: it waits for the next one of its queue, as its queue offset or the records before it
    # may be rotten: no checksum covers them. Or -errno.
    cdef int rc = 1
    if not _begun(t, q):
        if record.cq_offset == s.next_index and (s.next_index > 0 or t.log_begin == 0):
            return 1                    # nothing is missing before it
        rc = _begin_right(t, q, s, &record)
    elif s.waiting[0].size > 0 and record.physical > s.waiting[0].physical:
        rc = _put_waiting(t, q, s, &record)
    if rc < 0 or not _begun(t, q):
        return rc
    if t.filling == FILLING_BACK or record.cq_offset <= s.next_index:
        return 1 if record.cq_offset > 0 or s.next_index == 0 else 0    # a second first one has no place
    s.waiting[0] = record
    return 0


cdef int entries_decide(TableState *t) noexcept nogil:
    cdef QueueState *s
    cdef Queue *q
    cdef int64_t i
    cdef int rc = 0
    for i in range(rmq_load(&t.count)):
        q = table_at(t, i)
        s = state_of(q)
        while rmq_load32(&marks_of(q).held) == 0 and s.waiting[0].size > 0 and rc >= 0:      # nothing waits for a light queue
            if _begun(t, q):
                rc = _put_waiting(t, q, s, NULL)
            else:
                rc = _enter(t, q, s, &s.waiting[0], s.waiting[0].cq_offset)
            if rc >= 0:
                s.waiting[0] = s.waiting[1]
                s.waiting[1].size = 0
        if rc < 0:
            return rc
    return entries_publish(t)


cdef int _up_to(TableState *t, Queue *q, QueueState *s, Waiting *record) noexcept nogil:
    # A record whose number leaves a gap, as behind a confirm offset: what would be before it is lost, where that many records
    # fit in, and its own entry takes those places, too. Else it continues where the queue ends. 1, or -errno.
    cdef int64_t room = record.physical - q.max_physical_offset
    cdef bint partly = record.physical + record.size == q.max_physical_offset     # by a call that failed
    cdef int rc = 1
    if not _begun(t, q) or not (partly or record.cq_offset - s.next_index <= room // RECORD_FIXED_SIZE):
        return 1
    if s.next_index < record.cq_offset and not partly:
        rmq_add(&t.gaps, 1)
    while rc >= 0 and s.next_index < record.cq_offset:
        rc = _enter(t, q, s, record, s.next_index)
    return rc if rc < 0 else 1


cdef inline bint _first_waits(const QueueState *s, const Waiting *next) noexcept nogil:
    # Whether what the queue continues with is there already, and this record says that it is right.
    return s.waiting[0].size > 0 and s.waiting[0].cq_offset == s.next_index and _follows(&s.waiting[0], next)


cdef int entries_put(TableState *t, Queue *q, int64_t physical, int32_t size, int64_t tags_code, int64_t store_timestamp,
                     int64_t cq_offset) noexcept nogil:
    # Everything but the plain case. Nothing counts as done before all that can fail is done: a failed put can be repeated.
    cdef QueueState *s = state_of(q)
    cdef Waiting record = Waiting(physical, size, tags_code, store_timestamp, cq_offset)
    cdef int rc
    if t.readonly:
        return -EROFS
    if s.batched:
        return _put_batch(t, q, s, physical, size, tags_code, store_timestamp)
    if physical < 0 or size <= 0 or not entries_have_place(t, cq_offset, physical):
        # No reader could tell such an entry from unwritten space, or find it.
        rmq_add(&t.gaps, 1)
        return 0
    if q.max_physical_offset < 0 and physical < q.removed_below:
        return 0
    if (t.filling != FILLING_NOT and q.max_physical_offset <= t.log_begin < t.filled_from
            and cq_offset > s.next_index and not _first_waits(s, &record)):
        t.lacking_from = t.log_begin        # its first entries may be lost: only the whole log tells
        return 0
    if not topic_light(q.topic, q.topic_size):
        rc = _confirmed(t, q, s, record) if t.filling != FILLING_NOT else _up_to(t, q, s, &record)
        if rc <= 0:
            return rc
    return _put(t, q, s, physical, size, tags_code, store_timestamp, cq_offset)


cdef int _put(TableState *t, Queue *q, QueueState *s, int64_t physical, int32_t size, int64_t tags_code,
              int64_t store_timestamp, int64_t cq_offset) noexcept nogil:
    cdef int rc = _files_gone(t, s)
    if rc < 0:
        return rc
    if q.max_physical_offset < 0 or (q.max_physical_offset <= t.log_begin and cq_offset > s.next_index):
        rc = _begin(t, q, s, cq_offset)
        if rc < 0:
            return rc
    while s.next_index < s.blank_to:
        rc = _room(t, q, s)
        if rc < 0:
            return rc
        entry_append(s, 0, UNIT_FILLER, 0)
    if cq_offset != 0 and cq_offset < s.next_index:
        return 0
    if t.filling == FILLING_BACK and cq_offset > s.next_index:
        # Not to be put in the place of one that is lost: dispatch has to begin further back.
        if q.max_physical_offset < t.lacking_from:
            t.lacking_from = q.max_physical_offset
        return 0
    rc = _room(t, q, s)
    if rc >= 0 and t.ext_file_size > 0:
        rc = _lend(t, &s.ext)
        if rc >= 0:
            rc = _room(t, q, s)     # lending may have taken the other buffer back
        while rc >= 0 and s.ext.buffer == NULL:     # and this one: no other is free, as what they hold cannot be written
            rc = _flush_all(t)
            if rc >= 0:
                rc = _lend(t, &s.ext)
            if rc >= 0:
                rc = _room(t, q, s)
        if rc >= 0:
            # A record that has waited while the store opens gets none, which leaves the choice to whoever reads it.
            rc = ext_put(t.cache, &s.ext, tags_code, store_timestamp, t.bit_map,
                         t.bit_map_size if t.bit_map_of == physical else 0, &tags_code)
    if rc < 0:
        return rc
    if cq_offset != s.next_index:
        rmq_add(&t.gaps, 1)
    entry_append(s, physical, size, tags_code)
    rmq_publish(&q.max_physical_offset, physical + size)
    return 0


cdef void entries_note_unsynced(TableState *t, Queue *q) noexcept nogil:
    # max_offset was stored before: either the sync thread still has to look at it, or the queue is entered anew.
    cdef QueueState *s = state_of(q)
    rmq_fence()
    if rmq_load32(&s.unsynced):
        return
    rmq_mutex_lock(&t.sync_lock)
    if not s.unsynced:
        rmq_publish32(&s.unsynced, 1)
        s.next_unsynced = t.unsynced
        t.unsynced = q
    rmq_mutex_unlock(&t.sync_lock)


cdef int entries_publish(TableState *t) noexcept nogil:
    cdef Queue *q = t.dirty
    cdef Queue *next
    cdef Queue *kept = NULL
    cdef QueueState *s
    cdef int rc, error = 0
    while q != NULL:
        s = state_of(q)
        next = s.next_dirty
        rc = _flush(t, s)
        if rc < 0:
            # Its entries stay where they are: they are tried again with the next call.
            if error == 0:
                error = rc
            s.next_dirty = kept
            kept = q
        else:
            _give_back(t, &s.entries)
            _give_back(t, &s.ext)
            s.limit = 0
            s.dirty = False
            if s.new_min >= 0 and s.next_index >= s.new_min:
                rmq_publish(&q.min_offset, s.new_min)
                s.new_min = -1
            if s.batched:
                rmq_publish(&s.batch_end, s.entries.written if s.next_index > 0 else 0)     # 0: it was removed
            rmq_publish(&q.max_offset, s.next_index)
            rmq_event_wake(&q.arrived)
            if rmq_load(<const int64_t *> interests_of(q)) != 0 or rmq_load(&t.hubs_for_all) > 0:
                hubs_note(<QueueTable *> t, q)
            entries_note_unsynced(t, q)
            if rmq_load32(&marks_of(q).held) & HELD_BY_DISPATCH:
                rest_published(t, q)
        q = next
    t.dirty = kept
    if t.hubs_due:
        hubs_signal(<QueueTable *> t)
    return error
