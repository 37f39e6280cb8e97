"""The thread that flushes ahead of futures. Contract in _ahead.pxd."""
from libc.stdint cimport int64_t, uint64_t

from rmq_store.base.io._sync cimport (rmq_event_ticket, rmq_event_wait, rmq_event_wake, rmq_fence, rmq_load, rmq_load32,
                                      rmq_mutex_lock, rmq_mutex_unlock, rmq_publish, rmq_publish32, rmq_swap32,
                                      rmq_thread_join, rmq_thread_start)
from rmq_store.base.io._want cimport RMQ_WANT_RETRY_NS
from rmq_store.log.flush._flush cimport flush_all

cdef extern from "<unistd.h>" nogil:
    ssize_t write(int fd, const void *data, size_t size)    # an eventfd only: it is no part of a store


# Slaves get more when one has all but so many bytes of what went before, or after so long. Under synchronous flush it is the
# flush that lets puts gather, and it would wait here.
cdef int64_t UNDER_WAY_BYTES = 64 << 10, GATHER_NS = 1_000_000


cdef void ahead_signal(Ahead *a) noexcept nogil:
    cdef Sink *s
    cdef uint64_t one = 1
    rmq_fence()                             # what is durable now was published before this look at who waits
    rmq_mutex_lock(&a.lock)
    s = a.sinks
    while s != NULL:
        if rmq_load32(&s.armed) != 0 and rmq_swap32(&s.armed, 0) != 0:
            write(s.fd, &one, 8)
        s = s.next
    rmq_mutex_unlock(&a.lock)


cdef void ahead_replicate(Ahead *a, int64_t end, int acks) noexcept nogil:
    rmq_publish32(&a.acks, max(a.acks, acks, 1))
    rmq_publish(&a.replicate, max(end, a.replicate))
    rmq_publish32(a.watched, 1)


cdef bint _replicas(Ahead *a) noexcept nogil:
    # Signals when slaves have acknowledged more, or never will: whoever waits looks how his put stands, and knows by himself
    # when it is late. True: there was something to do.
    cdef int64_t wanted, moves
    cdef int acks
    cdef bint found
    if a.replicas == NULL:
        return False
    wanted, moves = rmq_load(&a.replicate), rmq_load(&a.replicas.moves)
    found = a.pushed < wanted or moves != a.moves
    if moves != a.moves:
        a.moves = moves
        ahead_signal(a)
    if a.pushed < wanted:
        a.replicas.push(a.replicas.of, wanted)
        a.pushed = wanted
        if rmq_load32(&a.log.fence) != 0:       # slaves may never have it, and say nothing then: who waits finds the fence
            ahead_signal(a)
        elif a.gathers:       # messages that are put meanwhile do not wake this thread, which reads what slaves say
            a.replicas.wait(a.replicas.of, wanted - UNDER_WAY_BYTES, 1, GATHER_NS)
    acks = rmq_load32(&a.acks)
    if rmq_load32(a.watched) != 0 and a.replicas.acked(a.replicas.of, acks) >= wanted:
        rmq_publish32(a.watched, 0)
        rmq_fence()
        if rmq_load(&a.replicate) != wanted or rmq_load32(&a.acks) != acks:
            rmq_publish32(a.watched, 1)
    return found


cdef void *_run(void *arg) noexcept nogil:
    # Flushes for everything that is wanted, again and again: what is put meanwhile is the next flush. Asleep when nothing is.
    cdef Ahead *a = <Ahead *> arg
    cdef int64_t wanted
    cdef int ticket
    while rmq_load32(&a.stop) == 0:
        ticket = rmq_event_ticket(a.more)
        wanted = rmq_load(&a.wanted)
        if wanted > a.told:
            # A failure is a fence, which futures find there, or it lacks something.
            if rmq_load(&a.log.flushed) < wanted and flush_all(a.log) < 0 and rmq_load32(&a.log.fence) == 0:
                rmq_event_wait(a.more, ticket, RMQ_WANT_RETRY_NS)
                continue
            a.told = wanted
            ahead_signal(a)
            continue
        if _replicas(a):
            continue
        rmq_publish32(&a.asleep, 1)
        rmq_fence()
        if (rmq_load(&a.wanted) <= a.told and rmq_load32(&a.stop) == 0
                and (a.replicas == NULL or (rmq_load(&a.replicate) <= a.pushed and rmq_load(&a.replicas.moves) == a.moves))):
            rmq_event_wait(a.more, ticket, -1)
        rmq_publish32(&a.asleep, 0)
    return NULL


cdef int ahead_start(Ahead *a) noexcept nogil:
    cdef int rc
    rc = rmq_thread_start(&a.thread, _run, a, b"rmq-ahead")
    a.running = rc == 0
    return rc


cdef void ahead_stop(Ahead *a) noexcept nogil:
    rmq_publish32(&a.stop, 1)
    rmq_event_wake(a.more)
    rmq_thread_join(&a.thread)
    a.running = False


cdef void ahead_add(Ahead *a, Sink *s) noexcept nogil:
    rmq_mutex_lock(&a.lock)
    s.next = a.sinks
    a.sinks = s
    rmq_mutex_unlock(&a.lock)


cdef void ahead_remove(Ahead *a, Sink *s) noexcept nogil:
    cdef Sink **at = &a.sinks
    rmq_mutex_lock(&a.lock)
    while at[0] != s:
        at = &at[0].next
    at[0] = s.next
    rmq_mutex_unlock(&a.lock)
