"""A followed queue begins, anew, or later with its log (RocketMQ: correctMinOffset). Contract in _begins.pxd."""
from libc.stdint cimport int64_t

from rmq_store.base.io._io cimport rmq_pread_all
from rmq_store.base.io._sync cimport (EAGAIN, EINVAL, ENOENT, ENOMEM, rmq_load, rmq_mutex_lock, rmq_mutex_unlock,
                                      rmq_publish)
from rmq_store.codec._inner cimport (BATCH_UNIT_SIZE, batch_base, batch_bytes, batch_count, batch_physical,
                                     batch_valid)
from rmq_store.codec._layout cimport UNIT_SIZE
from rmq_store.codec._record cimport topic_light
from rmq_store.codec._unit cimport unit_blank, unit_bytes, unit_physical, unit_valid
from rmq_store.queues.consumequeue._batches cimport queue_batched
from rmq_store.queues.consumequeue._descriptors cimport (FILES_PATH_SIZE, UnitFiles, descriptor_acquire, descriptor_forget,
                                                         descriptor_release, files_path)
from rmq_store.queues.consumequeue._files cimport files_done, files_init, files_lowest, files_pass_gone
from rmq_store.queues.consumequeue._kinds cimport CHANGE_ALL, topic_set_batched
from rmq_store.queues.consumequeue._rest cimport state_kept
from rmq_store.queues.consumequeue._state cimport BATCH_DROP, BATCH_TAKE, QueueState, TableState, links_of, state_of
from rmq_store.queues.consumequeue._structs cimport Queue, QueueTable
from rmq_store.queues.consumequeue._table cimport table_at, table_of_topic

cdef extern from *:
    """
    #include <fcntl.h>
    """
    enum: O_RDONLY, O_NOFOLLOW

cdef enum:
    OTHERS = 16                 # queues with files that are looked at where another one of their topic begins


cdef int64_t follow_units(TableState *t, UnitFiles *f, int64_t position, int64_t unit_size, unsigned char *out) noexcept nogil:
    cdef int64_t start = position - position % f.file_size, n = start + f.file_size - position, got
    cdef int i = descriptor_acquire(t.cache, f, start)
    if i < 0:
        return 0 if i == -ENOENT else i
    got = rmq_pread_all(t.io, t.cache.slots[i].fd, out, min(n, FOLLOW_UNITS * unit_size), position - start)
    descriptor_release(t.cache, i)
    return got if got < 0 else got // unit_size


cdef bint follow_unit(bint batched, const unsigned char *u, int64_t index, Unit *out) noexcept nogil:
    if batched:
        out.index, out.physical, out.size = batch_base(u), batch_physical(u), batch_bytes(u)
        out.next_index = out.index + batch_count(u)
        return batch_valid(u)
    out.index, out.next_index, out.physical, out.size = index, index + 1, unit_physical(u), unit_bytes(u)
    return unit_valid(u)


cdef void queue_look_for(TableState *t, Queue *q, int64_t physical, int looks) noexcept nogil:
    cdef QueueState *s = state_of(q)
    if physical >= s.expects:
        s.expects = physical + 1
        t.woken = t.woken or (s.dirty and s.limit == 0)
        s.limit = max(s.limit, looks)
    if not s.dirty:
        s.dirty = True
        s.next_dirty = t.dirty
        t.dirty = q


cdef int _is_new(TableState *t, Queue *q, UnitFiles *f, bint batched, int64_t start, int64_t below, EntryLeads leads,
                 void *ctx, int64_t *physical) noexcept nogil:
    # Whether its file begins with an entry of a later record than is known: 1, 0 or -errno.
    cdef QueueState *s = state_of(q)
    cdef unsigned char[FOLLOW_UNITS * BATCH_UNIT_SIZE] units
    cdef int64_t size = BATCH_UNIT_SIZE if batched else UNIT_SIZE
    cdef int64_t n, i = 0, known = q.max_physical_offset
    cdef Unit u
    if known < 0 and rmq_load(&q.max_offset) > 0:
        known = max(s.anew_at - 1, 0)
    descriptor_forget(t.cache, f, start)            # an open one may be of a deleted file
    n = follow_units(t, f, start, size, units)
    while not batched and i < n and unit_blank(units + i * UNIT_SIZE):
        i += 1
    if n <= 0 or i == n or not follow_unit(batched, units + i * size, start // UNIT_SIZE + i, &u):
        return <int> min(n, 0)
    if (u.physical < known or u.physical + u.size > below
            or (batched == s.batched and u.index >= max(s.next_index, q.max_offset))):
        return 0
    physical[0] = u.physical
    return min(leads(ctx, q, u.index, u.physical, u.size), 1)


cdef void queue_forget(TableState *t, Queue *q, int64_t physical) noexcept nogil:
    cdef QueueState *s = state_of(q)
    cdef int64_t start = rmq_load(&s.entries.first)
    while start < s.entries.end:
        descriptor_forget(t.cache, &s.entries, start)
        start += s.entries.file_size
    rmq_mutex_lock(&t.cache.begins_lock)
    if rmq_load(&q.max_offset) > 0:
        rmq_publish(&q.max_offset, 0)
        rmq_publish(&q.min_offset, 0)
    if physical > q.removed_below:
        rmq_publish(&q.removed_below, physical)     # whoever reads its files now sees why they are others
    rmq_publish(&q.max_physical_offset, -1)
    rmq_publish(&q.next_offset, 0)
    s.next_index = s.batch_read = s.anew_at = 0
    s.new_min = -1
    rmq_publish(&s.batch_end, 0)
    rmq_publish(&s.entries.first, 0)
    rmq_publish(&s.entries.end, 0)
    rmq_mutex_unlock(&t.cache.begins_lock)


cdef void _others_go(TableState *t, const Queue *begun, int64_t physical) noexcept nogil:
    # A topic is deleted whole: one of its queues begins, so those without files are of the life before. Where a few have files
    # the topic may just have got another queue. A directory that cannot be read keeps none of the queues from being shown.
    # Files may be away for a moment, while a recovery brings back what it has cut off: so they are looked for again.
    cdef Queue *q = table_of_topic(t, begun.topic, begun.topic_size)
    cdef int64_t known
    cdef int left = OTHERS
    while q != NULL and left > 0:
        if q != begun and rmq_load(&q.max_offset) > 0:
            if files_lowest(t.cache, &state_of(q).entries, 0) == -ENOENT:
                known = q.max_physical_offset
                queue_forget(t, q, max(physical, known))
                queue_look_for(t, q, known - 1, FOLLOW_PATIENCE)
            else:
                left -= 1
        q = links_of(q).same_topic


cdef void _begin_in(TableState *t, Queue *q, int64_t start, int64_t physical) noexcept nogil:
    cdef QueueState *s = state_of(q)
    queue_forget(t, q, physical)
    rmq_publish(&s.batch_end, start)
    rmq_publish(&s.entries.end, start)
    rmq_publish(&s.entries.first, start)
    s.batch_read = start
    s.next_index = s.new_min = 0 if s.batched else start // UNIT_SIZE
    s.limit = FOLLOW_PATIENCE


cdef int64_t _size_of(TableState *t, UnitFiles *f, int64_t start) noexcept nogil:
    cdef char[FILES_PATH_SIZE] path
    cdef int64_t size
    cdef int fd = files_path(f, start, path)
    if fd == 0:
        fd = t.io.open(t.io.ctx, path, O_RDONLY | O_NOFOLLOW, 0)
    if fd < 0:
        return fd
    size = t.io.size(t.io.ctx, fd)
    t.io.close(t.io.ctx, fd)
    return size


cdef int _adopt_size(TableState *t, int64_t size) noexcept nogil:
    # Files of batch queues have this size: nothing told it before, if no batch queue has a file. 0; -EINVAL.
    cdef int64_t i
    cdef Queue *q
    cdef QueueState *s
    for i in range(rmq_load(&t.count)):
        q = table_at(t, i)
        if queue_batched(q) and rmq_load(&state_of(q).entries.end) > rmq_load(&state_of(q).entries.first):
            return -EINVAL
    if size % BATCH_UNIT_SIZE != 0:
        return -EINVAL
    for i in range(rmq_load(&t.count)):
        s = state_of(table_at(t, i))
        if queue_batched(table_at(t, i)):
            s.entries.file_size = size
        elif s != NULL and s.other != NULL:             # it was a batch queue, and may become one again
            s.other.entries.file_size = size
    t.batch_file_size = size
    return 0


cdef int64_t _whole(TableState *t, UnitFiles *f, bint batched) noexcept nogil:
    # Start of the first file, if it has its size; -ENOENT; -errno. Files of batch queues may tell which size they have.
    cdef int64_t start = files_lowest(t.cache, f, 0), size = 0
    cdef int rc = 0
    if start >= 0 and batched:
        size = _size_of(t, f, start)
        if size <= 0:
            return size if size < 0 else -ENOENT        # it is just being made
        if size != t.batch_file_size:
            rc = _adopt_size(t, size)
    return start if rc == 0 else rc


cdef int queue_begins(TableState *t, Queue *q, int64_t below, EntryLeads leads, void *ctx) noexcept nogil:
    cdef QueueState *s = state_of(q)
    cdef bint bare = rmq_load(&s.entries.first) == s.entries.end and rmq_load(&q.max_offset) == 0
    cdef int64_t start = _whole(t, &s.entries, s.batched and bare), physical = 0
    cdef int rc = 0
    if start >= 0:
        rc = 1 if bare else _is_new(t, q, &s.entries, s.batched, start, below, leads, ctx, &physical)
        if rc == 1:
            _begin_in(t, q, start, physical)
            if not topic_light(q.topic, q.topic_size):
                _others_go(t, q, physical)
    elif start != -ENOENT:
        rc = <int> start
    if rc != 0 or s.anew_at == 0:
        return rc
    return _other_kind(t, q, below, leads, ctx)


cdef int _other_kind(TableState *t, Queue *q, int64_t below, EntryLeads leads, void *ctx) noexcept nogil:
    # Whether the queue has begun in a file of the other kind: OTHER_KIND, 0 or -errno.
    cdef bint batched = not state_of(q).batched
    cdef UnitFiles f
    cdef int64_t start, physical
    cdef int rc
    if batched and (t.batch_dir == NULL or topic_light(q.topic, q.topic_size)):
        return 0
    if files_init(&f, t.batch_dir if batched else t.dir, q.topic, q.topic_size, q.queue_id, 1) < 0:
        return -ENOMEM
    start = _whole(t, &f, batched)
    rc = <int> start if start < 0 and start != -ENOENT else 0
    if start >= 0:
        f.file_size = t.batch_file_size if batched else t.file_size
        rc = _is_new(t, q, &f, batched, start, below, leads, ctx, &physical)
        descriptor_forget(t.cache, &f, start)
    files_done(&f)
    return OTHER_KIND if rc == 1 else rc


cdef int queue_change_kind(TableState *t, Queue *changed) noexcept nogil:
    # All queues of the topic were deleted before one could begin with the other kind.
    cdef Queue *q = table_of_topic(t, changed.topic, changed.topic_size)
    cdef int64_t physical = state_of(changed).anew_at - 1
    cdef bint batched = not state_of(changed).batched
    while q != NULL:
        if state_of(q).batched != batched:
            queue_forget(t, q, physical)
        q = links_of(q).same_topic
    return min(topic_set_batched(<QueueTable *> t, changed.topic, changed.topic_size, BATCH_TAKE if batched else BATCH_DROP,
                                 CHANGE_ALL), 0)


# ---- the log begins later

cdef QueueState *queue_kept(TableState *t, Queue *q) noexcept nogil:
    cdef QueueState *s = state_kept(t, q)
    if s != NULL and s.back_end == 0:           # it has never gone back: as it was found when the store was opened
        s.next_index = max(s.next_index, rmq_load(&q.max_offset))
        s.batch_read = max(s.batch_read, s.batch_end) if s.batched else s.batch_read
    return s


cdef int _unit_from(TableState *t, QueueState *s, int64_t *at, int64_t end, Unit *u) noexcept nogil:
    # 1: `at` becomes the place of the first unit from there on that is one; 0: there is none before `end`; -errno.
    cdef unsigned char[FOLLOW_UNITS * BATCH_UNIT_SIZE] units
    cdef int64_t size = BATCH_UNIT_SIZE if s.batched else UNIT_SIZE, n, i
    while at[0] < end:
        n = follow_units(t, &s.entries, at[0], size, units)
        if n <= 0:
            return <int> n if n < 0 else -EAGAIN
        for i in range(min(n, (end - at[0]) // size)):
            if follow_unit(s.batched, units + i * size, at[0] // UNIT_SIZE, u):
                return 1
            at[0] += size
    return 0


cdef int _follow_min(TableState *t, Queue *q, QueueState *s, int64_t physical) noexcept nogil:
    cdef int64_t low, high, at, found, size, begins = -1, behind = 0
    cdef Unit u
    cdef int rc
    files_pass_gone(t.cache, &s.entries, &q.removed_below, rmq_load(&q.removed_below))
    size = BATCH_UNIT_SIZE if s.batched else UNIT_SIZE
    low = rmq_load(&s.entries.first) if s.batched else max(rmq_load(&s.entries.first), rmq_load(&q.min_offset) * UNIT_SIZE)
    high = rmq_load(&s.batch_end) if s.batched else rmq_load(&q.max_offset) * UNIT_SIZE
    found = high - size
    rc = _unit_from(t, s, &found, high, &u) if low < high else 1
    if rc <= 0:
        return rc if rc < 0 else -EAGAIN
    while low < high:
        at = found = low + (high - low) // size // 2 * size
        rc = _unit_from(t, s, &found, high, &u)
        if rc < 0:
            return rc
        if rc > 0 and u.physical < physical:
            low, behind = found + size, u.next_index
        else:                           # where a recovery may bring one back, it begins behind the one before
            high, begins = at, u.index if rc > 0 and found == at else -1
    if begins < 0:                      # if all of it is deleted, the queue counts as empty, and keeps its offset
        begins = behind
    rmq_mutex_lock(&t.cache.begins_lock)
    if begins > rmq_load(&q.min_offset):
        rmq_publish(&q.min_offset, begins)
    rmq_mutex_unlock(&t.cache.begins_lock)
    return 0


cdef int queues_follow_min(QueueTable *table, int64_t physical, bint moved) noexcept nogil:
    cdef TableState *t = <TableState *> table
    cdef QueueState *s
    cdef Queue *q
    cdef int64_t i
    cdef int rc, error = 0
    for i in range(rmq_load(&t.count)):
        q = table_at(t, i)
        s = state_kept(t, q) if moved else state_of(q)
        if s == NULL:
            error = -ENOMEM if moved else error
        elif moved or s.min_due:
            rc = _follow_min(t, q, s, physical)
            s.min_due = rc < 0
            error = rc if rc < 0 and rc != -EAGAIN else error
    return error


cdef void queues_were_cleaned(QueueTable *table, int64_t physical) noexcept nogil:
    cdef TableState *t = <TableState *> table
    cdef QueueState *s
    cdef Queue *q
    cdef int64_t i
    for i in range(rmq_load(&t.count)):
        q = table_at(t, i)
        s = queue_kept(t, q)
        if s == NULL:
            continue
        queue_may_be_anew(q, s)
        queue_look_for(t, q, physical - 1, 1)
