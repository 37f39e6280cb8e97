"""The log of a followed store begins later (RocketMQ: correctMinOffset). Contract in _cleaned.pxd."""
from libc.stdint cimport int32_t, int64_t

from rmq_store.base.io._sync cimport EAGAIN, ENOMEM, rmq_load, rmq_mutex_lock, rmq_mutex_unlock, rmq_publish
from rmq_store.codec._inner cimport BATCH_UNIT_SIZE
from rmq_store.codec._layout cimport UNIT_SIZE
from rmq_store.queues.consumequeue._begins cimport FOLLOW_UNITS, Unit, follow_unit, follow_units, queue_look_for
from rmq_store.queues.consumequeue._files cimport files_pass_gone
from rmq_store.queues.consumequeue._follow cimport queue_expect, queue_kept
from rmq_store.queues.consumequeue._rest cimport state_kept
from rmq_store.queues.consumequeue._state cimport QueueState, TableState, state_of
from rmq_store.queues.consumequeue._structs cimport Queue, QueueTable
from rmq_store.queues.consumequeue._table cimport table_at, table_find


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
        if s.anew_at == 0:
            s.anew_at = max(q.max_physical_offset, 0) + 1
        queue_look_for(t, q, physical - 1, 1)


cdef int queue_was_cleaned(QueueTable *table, const char *topic, int32_t topic_size, int32_t queue_id, bint inner,
                           int64_t physical) noexcept nogil:
    cdef Queue *q = table_find(<TableState *> table, topic, topic_size, queue_id, False)
    if q != NULL:                       # maybe by a directory of the other kind, which is empty
        if state_of(q) != NULL and state_of(q).anew_at == 0:
            state_of(q).anew_at = max(q.max_physical_offset, 0) + 1
        return 1
    return queue_expect(table, topic, topic_size, queue_id, 0, inner, physical - 1, True)
