"""How a topic gets batch queues, and how it ceases to have them. Contract in _kinds.pxd."""
from libc.stdint cimport int32_t

from rmq_store.base.io._sync cimport ENOMEM, rmq_load, rmq_load32, rmq_mutex_lock, rmq_mutex_unlock, rmq_publish32
from rmq_store.queues.consumequeue._batches cimport queue_batched
from rmq_store.queues.consumequeue._state cimport (BATCH_DROP, BATCH_OPEN, BATCH_TAKE, BatchStep, QueueState, TableState,
                                                   links_of, marks_of, state_of)
from rmq_store.queues.consumequeue._structs cimport Queue, QueueTable
from rmq_store.queues.consumequeue._table cimport table_change_kind, table_of_topic, table_set_batched


cdef bint queue_keep_plain(QueueTable *table, Queue *q) noexcept nogil:
    cdef TableState *t = <TableState *> table
    cdef bint plain
    if rmq_load32(&marks_of(q).held) != 0 or rmq_load32(&marks_of(q).plain):       # no light queue becomes a batch queue
        return True
    rmq_mutex_lock(&t.insert_lock)
    plain = not queue_batched(q)
    if plain:
        rmq_publish32(&marks_of(q).plain, 1)
    rmq_mutex_unlock(&t.insert_lock)
    return plain


cdef bint _bare(const Queue *q) noexcept nogil:
    # A queue without messages and files may become one of the other kind. What cannot be written now is not yet gone.
    cdef const QueueState *s
    if rmq_load32(&marks_of(q).held) != 0:
        return False
    s = state_of(q)
    return (q.next_offset == 0 and rmq_load(&q.max_offset) == 0 and s.next_index == 0 and not s.dirty and not s.deleting
            and rmq_load(&s.entries.first) == rmq_load(&s.entries.end))


cdef inline bint _in_the_way(const Queue *q, BatchStep step, Change change) noexcept nogil:
    if step == BATCH_TAKE or step == BATCH_OPEN:
        return not queue_batched(q) and not (change != CHANGE_NOT and _bare(q)
                                             and (change == CHANGE_ALL or not rmq_load32(&marks_of(q).plain)))
    return queue_batched(q) and (q.next_offset > 0 or rmq_load(&q.max_offset) > 0 or state_of(q).next_index > 0
                                 or rmq_load32(&state_of(q).deleting) != 0)


cdef int topic_set_batched(QueueTable *table, const char *topic, int32_t topic_size, BatchStep step,
                           Change change) noexcept nogil:
    cdef TableState *t = <TableState *> table
    cdef Queue *q
    cdef int rc = 0
    rmq_mutex_lock(&t.insert_lock)
    q = table_of_topic(t, topic, topic_size)
    while q != NULL and rc == 0:
        rc = _in_the_way(q, step, change)
        q = links_of(q).same_topic
    if rc == 0:
        rc = table_set_batched(t, topic, topic_size, step)
    if rc == 0 and change != CHANGE_NOT and (step == BATCH_TAKE or step == BATCH_DROP):
        rc = _change_kinds(t, topic, topic_size, step == BATCH_TAKE)
        if rc < 0 and step == BATCH_TAKE:
            table_set_batched(t, topic, topic_size, BATCH_DROP)
            _change_kinds(t, topic, topic_size, False)
    rmq_mutex_unlock(&t.insert_lock)
    return rc


cdef int _change_kinds(TableState *t, const char *topic, int32_t topic_size, bint batched) noexcept nogil:
    # 0, or -ENOMEM after all that could change have changed.
    cdef Queue *q = table_of_topic(t, topic, topic_size)
    cdef int rc = 0
    while q != NULL:
        if queue_batched(q) != batched and _bare(q) and table_change_kind(t, q) < 0:
            rc = -ENOMEM
        q = links_of(q).same_topic
    return rc
