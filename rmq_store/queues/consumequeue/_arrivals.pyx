"""Telling listeners which queues got messages (RocketMQ: MessageArrivingListener). Contract in _arrivals.pxd."""
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free

from rmq_store.base.io._sync cimport ENOMEM, rmq_mutex_lock, rmq_mutex_unlock, rmq_publish
from rmq_store.queues.consumequeue._state cimport TableState, interests_of
from rmq_store.queues.consumequeue._structs cimport Interest, Queue, QueueTable

cdef extern from "<unistd.h>" nogil:
    ssize_t write(int fd, const void *data, size_t size)    # an eventfd only: it is no part of a store


cdef inline TableState *_table(QueueTable *t) noexcept nogil:
    return <TableState *> t


cdef Hub *hub_new(QueueTable *table, int fd, bint all) noexcept nogil:
    cdef TableState *t = _table(table)
    cdef Hub *h = <Hub *> calloc(1, sizeof(Hub))
    if h == NULL:
        return NULL
    h.table = table
    h.fd = fd
    h.all = all
    rmq_mutex_lock(&t.watch_lock)
    h.next = t.hubs
    t.hubs = h
    if all:
        rmq_publish(&t.hubs_for_all, t.hubs_for_all + 1)
    rmq_mutex_unlock(&t.watch_lock)
    return h


cdef Interest *_interest(Hub *h, Queue *q, bint create) noexcept nogil:
    cdef Interest *i = interests_of(q)[0]
    while i != NULL and i.hub != h:
        i = i.next_of_queue
    if i != NULL or not create:
        return i
    i = <Interest *> calloc(1, sizeof(Interest))
    if i != NULL:
        i.queue = q
        i.hub = h
        i.next_of_queue = interests_of(q)[0]
        rmq_publish(<int64_t *> interests_of(q), <int64_t> i)
        i.next_of_hub = h.interests
        h.interests = i
    return i


cdef void _drop(Interest *i) noexcept nogil:
    # Out of both lists and of what is pending.
    cdef Interest **at = interests_of(i.queue)
    while at[0] != i:
        at = &at[0].next_of_queue
    rmq_publish(<int64_t *> at, <int64_t> i.next_of_queue)
    at = &i.hub.interests
    while at[0] != i:
        at = &at[0].next_of_hub
    at[0] = i.next_of_hub
    if i.pending:
        at = &i.hub.pending
        while at[0] != i:
            at = &at[0].next_pending
        at[0] = i.next_pending
    free(i)


cdef void hub_free(Hub *h) noexcept nogil:
    cdef TableState *t
    cdef Hub **at
    if h == NULL:
        return
    t = _table(h.table)
    rmq_mutex_lock(&t.watch_lock)
    while h.interests != NULL:
        _drop(h.interests)
    at = &t.hubs
    while at[0] != h:
        at = &at[0].next
    at[0] = h.next
    if h.all:
        rmq_publish(&t.hubs_for_all, t.hubs_for_all - 1)
    rmq_mutex_unlock(&t.watch_lock)
    free(h)


cdef int hub_watch(Hub *h, Queue *q) noexcept nogil:
    cdef TableState *t = _table(h.table)
    cdef Interest *i
    rmq_mutex_lock(&t.watch_lock)
    i = _interest(h, q, True)
    if i != NULL:
        i.uses += 1
    rmq_mutex_unlock(&t.watch_lock)
    return -ENOMEM if i == NULL else 0


cdef void hub_unwatch(Hub *h, Queue *q) noexcept nogil:
    cdef TableState *t = _table(h.table)
    cdef Interest *i
    rmq_mutex_lock(&t.watch_lock)
    i = _interest(h, q, False)
    if i != NULL:
        i.uses -= 1
        if i.uses <= 0 and not h.all:
            _drop(i)
    rmq_mutex_unlock(&t.watch_lock)


cdef int hub_take(Hub *h, Queue **out, int most) noexcept nogil:
    cdef TableState *t = _table(h.table)
    cdef Interest *i
    cdef int n = 0
    rmq_mutex_lock(&t.watch_lock)
    while n < most and h.pending != NULL:
        i = h.pending
        h.pending = i.next_pending
        i.pending = False
        out[n] = i.queue
        n += 1
    rmq_mutex_unlock(&t.watch_lock)
    return n


cdef inline void _note(TableState *t, Interest *i) noexcept nogil:
    if not i.pending:
        i.pending = True
        i.next_pending = i.hub.pending
        i.hub.pending = i
    i.hub.due = True
    t.hubs_due = True


cdef void hubs_note(QueueTable *table, Queue *q) noexcept nogil:
    cdef TableState *t = _table(table)
    cdef Interest *i
    cdef Hub *h
    rmq_mutex_lock(&t.watch_lock)
    if t.hubs_for_all > 0:
        h = t.hubs
        while h != NULL:
            if h.all and _interest(h, q, True) == NULL:
                h.due = t.hubs_due = True       # out of memory: woken all the same, it looks for itself
            h = h.next
    i = interests_of(q)[0]
    while i != NULL:
        _note(t, i)
        i = i.next_of_queue
    rmq_mutex_unlock(&t.watch_lock)


cdef void hubs_signal(QueueTable *table) noexcept nogil:
    cdef TableState *t = _table(table)
    cdef Hub *h
    cdef uint64_t one = 1
    rmq_mutex_lock(&t.watch_lock)
    h = t.hubs
    while h != NULL:
        if h.due:
            h.due = False
            write(h.fd, &one, 8)        # cannot fail but by a full counter, which is readable already
        h = h.next
    t.hubs_due = False
    rmq_mutex_unlock(&t.watch_lock)
