"""The queues of a store (RocketMQ: ConsumeQueue, ConsumeQueueStore). Contract in _queue.pxd.

A queue costs memory and, from its first entry on, a directory and sparse files; nothing else is kept open for it. The work is
done next door: _table finds queues, _entries takes entries in, _recover finds and moves their ends, _files and _descriptors
do the I/O.
"""
from libc.stdint cimport INT64_MAX, int32_t, int64_t
from libc.stdlib cimport calloc, free

from rmq_store.base.io._io cimport rmq_io
from rmq_store.base.io._sync cimport (EIO, ENOENT, ENOMEM, EROFS, rmq_add, rmq_load, rmq_load32, rmq_mutex_lock,
                                      rmq_mutex_unlock, rmq_publish, rmq_publish32, rmq_swap32)
from rmq_store.base.segment._allocator cimport Allocator
from rmq_store.codec._inner cimport BATCH_UNIT_SIZE
from rmq_store.codec._layout cimport RECORD_FIXED_SIZE, UNIT_SIZE
from rmq_store.codec._unit cimport unit_bytes
from rmq_store.queues.consumequeue._batches cimport (batches_back, batches_drop, batches_find, batches_min, batches_read,
                                                     batches_truncate)
from rmq_store.queues.consumequeue._descriptors cimport UnitFiles
from rmq_store.queues.consumequeue._entries cimport (entries_decide, entries_delete_files, entries_have_place,
                                                     entries_note_unsynced, entries_publish, entries_put)
from rmq_store.queues.consumequeue._ext cimport ExtWindow, ext_look, ext_read
from rmq_store.queues.consumequeue._files cimport (files_add, files_cut, files_modified_ms, files_pass_gone, files_passed,
                                                   files_read, files_there)
from rmq_store.queues.consumequeue._recover cimport (recover_back, recover_drop, recover_find, recover_min, recover_truncate)
from rmq_store.queues.consumequeue._rest cimport HELD_BY_DISPATCH, rest_hold_dispatch, rest_published, state_hold, state_let
from rmq_store.queues.consumequeue._spares cimport Spares, spares_clear, spares_make
from rmq_store.queues.consumequeue._state cimport (FILLING_ALL, FILLING_BACK, FILLING_NOT, QueueState, TableState, entry_append,
                                                   links_of, marks_of, state_of)
from rmq_store.queues.consumequeue._syncing cimport entries_sync
from rmq_store.queues.consumequeue._table cimport table_at, table_done, table_find, table_init, table_of_topic
from rmq_store.queues.consumequeue._units cimport units_cut_off

cdef struct QueueFiles:
    QueueState state

cdef struct QueueTable:
    TableState state


# ---- life and look-up

cdef QueueTable *queues_new(const rmq_io *io, const char *dir, const char *ext_dir, const char *tmp_dir, int64_t file_size,
                            int64_t ext_file_size, int fd_max, bint readonly) noexcept nogil:
    cdef QueueTable *t = <QueueTable *> calloc(1, sizeof(QueueTable))
    if t != NULL and table_init(&t.state, io, dir, ext_dir, tmp_dir, file_size, ext_file_size, fd_max, readonly) < 0:
        queues_free(t)
        return NULL
    return t


cdef void queues_free(QueueTable *t) noexcept nogil:
    if t != NULL:
        table_done(&t.state)
        free(t)


cdef bint _make_ahead(void *spares) noexcept nogil:
    return spares_make(<Spares *> spares)


cdef void _clear_ahead(void *spares) noexcept nogil:
    spares_clear(<Spares *> spares)


cdef void queues_make_ahead(QueueTable *t, Allocator *a) noexcept nogil:
    a.also = _make_ahead
    a.also_done = _clear_ahead
    a.also_of = t.state.spares
    rmq_publish(<int64_t *> &t.state.spares.maker, <int64_t> &a.requested)


cdef Queue *queues_find(QueueTable *t, const char *topic, int32_t topic_size, int32_t queue_id, bint create) noexcept nogil:
    return table_find(&t.state, topic, topic_size, queue_id, create)


cdef int64_t queues_count(QueueTable *t) noexcept nogil:
    return rmq_load(&t.state.count)


cdef Queue *queues_at(QueueTable *t, int64_t i) noexcept nogil:
    return table_at(&t.state, i)


cdef Queue *queues_of_topic(QueueTable *t, const char *topic, int32_t topic_size) noexcept nogil:
    return table_of_topic(&t.state, topic, topic_size)


cdef Queue *queue_same_topic(const Queue *q) noexcept nogil:
    return links_of(q).same_topic


# ---- load and recovery

cdef int queue_add_file(QueueTable *t, Queue *q, int64_t start) noexcept nogil:
    cdef QueueState *s = state_hold(&t.state, q)
    cdef int rc = -ENOMEM if s == NULL else files_add(&s.entries, start)
    if s != NULL:
        state_let(&t.state, q)
    return rc


cdef int queue_add_ext_file(QueueTable *t, Queue *q, int64_t start) noexcept nogil:
    return files_add(&state_of(q).ext, start) if t.state.ext_file_size > 0 else 0


cdef void queues_log_begins(QueueTable *t, int64_t offset) noexcept nogil:
    t.state.log_begin = offset


cdef void queues_fill(QueueTable *t, bint back, int64_t from_offset, int64_t end) noexcept nogil:
    t.state.filling = FILLING_BACK if back else FILLING_ALL
    t.state.filled_from = from_offset
    t.state.places_left = (end - from_offset) // RECORD_FIXED_SIZE
    t.state.lacking_from = INT64_MAX
    if t.state.spares != NULL:
        t.state.spares.opening = True


cdef int queues_filled(QueueTable *t, int64_t *lacking_from) noexcept nogil:
    cdef int rc = entries_decide(&t.state)
    t.state.filling = FILLING_NOT
    if t.state.spares != NULL:
        t.state.spares.opening = False
    lacking_from[0] = t.state.lacking_from
    return rc


cdef inline bint _moved(TableState *t, QueueState *s, int rc, int64_t *first) noexcept nogil:
    # Beside a writer in another process: files went while they were looked at, so again from the first that is left.
    if not t.readonly or rc != -EIO or rmq_load(&s.entries.first) == first[0]:
        return False
    first[0] = rmq_load(&s.entries.first)
    return True


ctypedef int (*Step)(TableState *t, Queue *q, QueueState *s, int64_t argument) noexcept nogil


cdef int _step(QueueTable *table, Queue *q, Step plain, Step batches, int64_t argument) noexcept nogil:
    cdef TableState *t = &table.state
    cdef QueueState *s = state_hold(t, q)
    cdef Step step
    cdef int64_t first
    cdef int rc
    if s == NULL:
        return -ENOMEM
    step = batches if s.batched else plain
    first = rmq_load(&s.entries.first)
    rc = step(t, q, s, argument) if rmq_load32(&s.deleting) == 0 else 0     # its files are not its own any more
    while _moved(t, s, rc, &first):
        rc = step(t, q, s, argument)
    state_let(t, q)
    return rc


cdef int _find_end(TableState *t, Queue *q, QueueState *s, int64_t safe) noexcept nogil:
    cdef int rc = batches_find(t, q, s, safe) if s.batched else recover_find(t, q, s, safe)
    if rc >= 0 and safe >= 0 and not t.readonly and s.entries.end > s.entries.first:
        entries_note_unsynced(t, q)
    return rc


cdef int queue_find_end(QueueTable *t, Queue *q, int64_t safe) noexcept nogil:
    return _step(t, q, _find_end, _find_end, safe)


cdef int64_t queue_first(const Queue *q) noexcept nogil:
    cdef TableState *t = links_of(q).table      # of a light queue
    cdef const QueueState *s
    cdef int64_t first = 0
    if t != NULL:
        rmq_mutex_lock(&t.rest.lock)
    s = state_of(q)
    if s != NULL and s.batched:
        first = q.min_offset
    elif s != NULL:
        first = s.entries.first // UNIT_SIZE if s.entries.first < s.entries.end else 0
    elif links_of(q).files > 0:
        first = links_of(q).first_file * t.file_size // UNIT_SIZE
    if t != NULL:
        rmq_mutex_unlock(&t.rest.lock)
    return first


cdef void queues_follow(QueueTable *t) noexcept nogil:
    t.state.cache.following = True


cdef int queue_back_to(QueueTable *t, Queue *q, int64_t index) noexcept nogil:
    return _step(t, q, recover_back, batches_back, index)


cdef int _cut(TableState *t, Queue *q, QueueState *s, int64_t argument) noexcept nogil:
    # A file of zeros at the begin of a queue would be damage to the next open; where it begins later it says with which number.
    cdef int rc = files_cut(t.cache, &s.entries, s.entries.written, BATCH_UNIT_SIZE if s.batched else UNIT_SIZE,
                            s.entries.written > 0)
    if rc >= 0 and t.ext_file_size > 0:
        rc = files_cut(t.cache, &s.ext, s.ext.written, 1, s.ext.written > 0)
    return rc


cdef int queue_cut(QueueTable *t, Queue *q) noexcept nogil:
    return _step(t, q, _cut, _cut, 0)


cdef int queue_truncate(QueueTable *t, Queue *q, int64_t physical) noexcept nogil:
    return _step(t, q, recover_truncate, batches_truncate, physical)


cdef int queue_correct_min(QueueTable *t, Queue *q, int64_t physical_min) noexcept nogil:
    return _step(t, q, recover_min, batches_min, physical_min)


cdef int queue_drop_before(QueueTable *t, Queue *q, int64_t physical_min) noexcept nogil:
    return _step(t, q, recover_drop, batches_drop, physical_min)


cdef int queue_empty(QueueTable *table, Queue *q) noexcept nogil:
    cdef QueueState *s = state_hold(&table.state, q)    # of a light queue, too: it says that the files are to go
    if s == NULL:
        return -ENOMEM
    rmq_publish(&q.max_offset, 0)
    rmq_publish(&q.min_offset, 0)
    q.next_offset = 0
    rmq_publish(&q.max_physical_offset, -1)
    s.next_index = 0
    s.blank_to = 0
    s.new_min = -1
    s.limit = s.batch_limit = 0
    rmq_publish(&s.batch_end, 0)
    s.entries.used = 0
    s.ext.used = 0
    rmq_swap32(&s.entries.new_dirs, 0)
    rmq_swap32(&s.ext.new_dirs, 0)
    if rmq_load32(&s.deleting) == 0:
        rmq_add(&table.state.deletions, 1)
    rmq_publish32(&s.deleting, 1)
    state_let(&table.state, q)
    return 0


cdef int queue_delete_files(QueueTable *table, Queue *q) noexcept nogil:
    cdef QueueState *s = state_hold(&table.state, q)
    cdef int rc = -ENOMEM if s == NULL else entries_delete_files(&table.state, s)
    if s != NULL:
        state_let(&table.state, q)
    return rc


cdef bint queue_deleting(Queue *q) noexcept nogil:
    cdef TableState *t = links_of(q).table      # of a light queue
    cdef const QueueState *s
    cdef bint deleting
    if t != NULL:
        rmq_mutex_lock(&t.rest.lock)
    s = state_of(q)
    deleting = s != NULL and rmq_load32(&s.deleting) != 0
    if t != NULL:
        rmq_mutex_unlock(&t.rest.lock)
    return deleting


cdef bint queues_deleting(QueueTable *t) noexcept nogil:
    return rmq_load(&t.state.deletions) != 0


cdef int queue_destroy(QueueTable *table, Queue *q) noexcept nogil:
    cdef int rc = -EROFS if table.state.readonly else queue_empty(table, q)
    return rc if rc < 0 else queue_delete_files(table, q)


cdef void queues_hold_sync(QueueTable *t) noexcept nogil:
    rmq_mutex_lock(&t.state.run_lock)


cdef void queues_let_sync(QueueTable *t) noexcept nogil:
    rmq_mutex_unlock(&t.state.run_lock)


# ---- dispatch and durability

cdef inline int _put(TableState *t, Queue *q, QueueState *s, int64_t physical, int32_t size, int64_t tags_code,
                     int64_t store_timestamp, int64_t cq_offset) noexcept nogil:
    if (s.entries.used < s.limit and cq_offset == s.next_index and t.ext_file_size == 0 and physical >= 0 and size > 0
            and q.max_physical_offset >= 0):
        entry_append(s, physical, size, tags_code)
        rmq_publish(&q.max_physical_offset, physical + size)
        return 0
    return entries_put(t, q, physical, size, tags_code, store_timestamp, cq_offset)


cdef int _put_first(TableState *t, Queue *q, int64_t physical, int32_t size, int64_t tags_code, int64_t store_timestamp,
                    int64_t cq_offset) noexcept nogil:
    # The first entry of a light queue since the last one was published: held from here on, if there is one to publish.
    cdef QueueState *s = rest_hold_dispatch(t, q)
    cdef int rc
    if s == NULL:
        return -ENOMEM
    rc = _put(t, q, s, physical, size, tags_code, store_timestamp, cq_offset)
    if not s.dirty:
        rest_published(t, q)
    return rc


cdef int queue_put(QueueTable *table, Queue *q, int64_t physical, int32_t size, int64_t tags_code, int64_t store_timestamp,
                   int64_t cq_offset) noexcept nogil:
    cdef int held = rmq_load32(&marks_of(q).held)
    if physical + size <= q.max_physical_offset:
        return 0
    if held != 0 and not held & HELD_BY_DISPATCH:
        return _put_first(&table.state, q, physical, size, tags_code, store_timestamp, cq_offset)
    return _put(&table.state, q, state_of(q), physical, size, tags_code, store_timestamp, cq_offset)


cdef int64_t queue_next(const Queue *q) noexcept nogil:
    cdef int held = rmq_load32(&marks_of(q).held)
    if held != 0 and not held & HELD_BY_DISPATCH:       # of a light queue at rest: all is published
        return rmq_load(&q.max_offset)
    return state_of(q).next_index


cdef bint queue_begins_anew(const Queue *q, int64_t physical, int64_t cq_offset) noexcept nogil:
    return cq_offset == 0 and physical >= q.max_physical_offset


cdef void queues_bit_map(QueueTable *t, int64_t physical, const unsigned char *bits, int size) noexcept nogil:
    t.state.bit_map_of, t.state.bit_map, t.state.bit_map_size = physical, bits, size


cdef int queues_publish(QueueTable *t) noexcept nogil:
    return entries_publish(&t.state)


cdef int64_t queues_gaps(QueueTable *t) noexcept nogil:
    return rmq_load(&t.state.gaps)


cdef bint queues_have_place(QueueTable *t, int64_t cq_offset, int64_t physical) noexcept nogil:
    return entries_have_place(&t.state, cq_offset, physical)


cdef int64_t queues_placeless(QueueTable *t, int64_t *at) noexcept nogil:
    at[0] = t.state.placeless_at
    return t.state.placeless


cdef int queues_sync(QueueTable *t, int64_t pages_min) noexcept nogil:
    return entries_sync(&t.state, pages_min)


cdef bint queues_sync_failed(QueueTable *t) noexcept nogil:
    return t.state.sync_error < 0 or rmq_load32(&t.state.cache.sync_failed) != 0


# ---- reading

cdef int64_t queue_read(QueueTable *t, Queue *q, int64_t from_offset, unsigned char *out, int64_t count) noexcept nogil:
    cdef QueueState *s
    cdef int64_t got, removed
    if count <= 0 or from_offset < 0 or from_offset >= rmq_load(&q.max_offset):
        return 0
    s = state_hold(&t.state, q)
    if s == NULL:
        return -ENOMEM
    while True:
        removed = rmq_load(&q.removed_below)
        got = _read(t, q, s, from_offset, removed, out, count)
        if got < 0 and state_of(q) != s:        # removed under the read, and of the other kind now
            s = state_of(q)
            continue
        if got >= 0 or (removed == rmq_load(&q.removed_below) and from_offset < rmq_load(&q.max_offset)):
            break               # else it begins anew: its files were deleted under the read
    state_let(&t.state, q)
    return got


cdef int64_t _read(QueueTable *t, Queue *q, QueueState *s, int64_t from_offset, int64_t removed, unsigned char *out,
                   int64_t count) noexcept nogil:
    cdef int64_t end = rmq_load(&q.max_offset)
    cdef int64_t got, first, n, cut_off
    cdef bint again = False
    if s.batched:
        return batches_read(&t.state, q, s, from_offset, out, count)
    if count > end - from_offset:
        count = end - from_offset
    if count <= 0:
        return 0
    got = files_read(t.state.cache, &s.entries, out, count * UNIT_SIZE, from_offset * UNIT_SIZE)
    while t.state.cache.following and (got >= UNIT_SIZE or got == -ENOENT):
        n = 0
        while n < got // UNIT_SIZE and unit_bytes(out + n * UNIT_SIZE) != 0:
            n += 1
        if got > 0 and (again or n == got // UNIT_SIZE):
            break
        cut_off = units_cut_off(&t.state, s, from_offset + n, end * UNIT_SIZE)
        if cut_off != 0:
            return cut_off if cut_off < 0 else n
        # What is not there once more, after the last one was, is damage. Else it has come between the two looks.
        again = True
        files_pass_gone(t.state.cache, &s.entries, &q.removed_below, removed)
        got = 0
        if files_there(t.state.cache, &s.entries, from_offset * UNIT_SIZE - from_offset * UNIT_SIZE % t.state.file_size) == 1:
            got = files_read(t.state.cache, &s.entries, out, count * UNIT_SIZE, from_offset * UNIT_SIZE)
    if got < UNIT_SIZE:
        if got == -ENOENT and rmq_load(&q.max_offset) <= from_offset:
            return 0                # truncated or destroyed meanwhile
        if got == -ENOENT and from_offset * UNIT_SIZE < rmq_load(&s.entries.first):
            return 0                # deleted with the log it led to
        if got >= 0:                # before the first file, or a file shorter than its length
            first = rmq_load(&s.entries.first)
            if from_offset * UNIT_SIZE >= first:
                return -EIO
            if t.state.readonly:        # nobody else says where the queue begins now
                first = first // UNIT_SIZE if first // UNIT_SIZE < end else end
                rmq_mutex_lock(&t.state.cache.begins_lock)
                if first > rmq_load(&q.min_offset) and removed == rmq_load(&q.removed_below):
                    rmq_publish(&q.min_offset, first)
                rmq_mutex_unlock(&t.state.cache.begins_lock)
            return 0
        return got
    return got // UNIT_SIZE


cdef int64_t queue_read_ext(QueueTable *t, Queue *q, int64_t address, int64_t *tags_code, int64_t *store_timestamp,
                            unsigned char *bit_map, int64_t bit_map_max) noexcept nogil:
    if t.state.ext_file_size == 0 or t.state.cache.following:
        return -ENOENT
    return ext_read(t.state.cache, &state_of(q).ext, address, tags_code, store_timestamp, bit_map, bit_map_max)


cdef int64_t queue_look_ext(QueueTable *t, Queue *q, ExtWindow *w, int64_t address, int64_t *tags_code,
                            int64_t *store_timestamp, const unsigned char **bit_map) noexcept nogil:
    if t.state.ext_file_size == 0 or t.state.cache.following:
        return -ENOENT
    return ext_look(t.state.cache, &state_of(q).ext, w, address, tags_code, store_timestamp, bit_map)


cdef int64_t queue_file_count(QueueTable *t, Queue *q) noexcept nogil:
    # Files with at least one published entry.
    cdef int64_t rest = rmq_load(&q.max_offset) * UNIT_SIZE
    cdef QueueState *s
    if rest == 0:
        return 0
    s = state_hold(&t.state, q)
    if s == NULL:
        return -ENOMEM
    rest = 0 if s.batched else rest - rmq_load(&s.entries.first)    # a batch queue's files say of no queue offset where it is
    state_let(&t.state, q)
    return (rest + t.state.file_size - 1) // t.state.file_size if rest > 0 else 0


cdef int queue_file_at(QueueTable *t, Queue *q, int64_t i, int64_t *start_offset, int64_t *end_offset,
                       int64_t *modified_ms) noexcept nogil:
    cdef QueueState *s = state_hold(&t.state, q)
    cdef int rc
    if s == NULL:
        return -ENOMEM
    rc = _file_at(t, q, &s.entries, i, start_offset, end_offset, modified_ms)
    state_let(&t.state, q)
    return rc


cdef int _file_at(QueueTable *t, Queue *q, UnitFiles *f, int64_t i, int64_t *start_offset, int64_t *end_offset,
                  int64_t *modified_ms) noexcept nogil:
    cdef int64_t removed = rmq_load(&q.removed_below)
    cdef int64_t start = rmq_load(&f.first) + i * f.file_size
    cdef int64_t end = rmq_load(&q.max_offset) * UNIT_SIZE
    if i < 0 or start >= end:
        return -ENOENT
    start_offset[0] = start // UNIT_SIZE
    end_offset[0] = (end if end < start + f.file_size else start + f.file_size) // UNIT_SIZE
    modified_ms[0] = files_modified_ms(t.state.cache, f, start)
    if modified_ms[0] == -ENOENT and t.state.cache.following:
        files_pass_gone(t.state.cache, f, &q.removed_below, removed)
    elif modified_ms[0] == -ENOENT and t.state.readonly:
        files_passed(t.state.cache, f, start + f.file_size)
    return 0 if modified_ms[0] >= 0 else <int> modified_ms[0]
