"""A hub of arrivals for Python: which queues got messages since the last look, with one eventfd to wait on.

For one consumer, a thread or an event loop; watch and wake from any thread. Lives as long as its store is open, at most.
"""
import os
import threading

cimport cython
from libc.stdint cimport int32_t, int64_t

from rmq_store.access.reader._checked cimport utf8
from rmq_store.access.waiting._wait cimport StoreWait
from rmq_store.base.io._sync cimport rmq_load
from rmq_store.log.dispatch._dispatch cimport dispatch_waiter
from rmq_store.queues.consumequeue._arrivals cimport Hub, hub_free, hub_new, hub_take, hub_unwatch, hub_watch
from rmq_store.queues.consumequeue._queue cimport Queue, queues_find

from rmq_store import errors

cdef enum:
    AT_ONCE = 256


@cython.no_gc_clear     # __dealloc__ needs the store and the lock
cdef class Arrivals:
    """Arrivals of one store. everything: watch all queues, new ones too; else only those that watch() names."""

    cdef StoreWait store
    cdef object __weakref__
    cdef Hub *hub
    cdef int fd
    cdef object fd_lock     # RLock: while one thread closes the eventfd another may wake it, by a number that is another's then
    cdef bint everything
    cdef int64_t watched

    def __cinit__(self):
        self.fd = -1
        self.fd_lock = threading.RLock()

    def __init__(self, StoreWait store not None, *, everything=False):
        self.store = store
        self.everything = everything
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        store._hubs.add(self)       # a close() that begins from here on finds it
        store._check_open()         # and one that has begun before is seen: the GIL is kept from here to the hub
        self.hub = hub_new(store.queues, self.fd, everything)
        if self.hub == NULL:
            raise MemoryError("hub of arrivals")
        if everything:
            self._count(1)

    def __dealloc__(self):
        if self.store is not None and self.store.alive[0] != 1:
            return          # the child of a fork: the lists are the parent's
        self._release()

    cdef void _count(self, int64_t change):
        # While anything is watched, a reader waits: the dispatcher is woken by every append that finds it asleep.
        cdef bint before = self.watched > 0
        self.watched += change
        if before != (self.watched > 0) and self.store.dispatcher != NULL:
            dispatch_waiter(self.store.dispatcher, -1 if before else 1)

    def _detach(self):
        """The store closes: its queues are about to go. A loop that waits for the eventfd wakes and finds out."""
        if self.hub != NULL:
            self._count(-self.watched)
            hub_free(self.hub)
        self.hub = NULL
        self.wake()

    cdef void _release(self):
        cdef int fd
        if self.hub != NULL and self.store.queues != NULL:
            self._count(-self.watched)
            hub_free(self.hub)
        self.hub = NULL
        with self.fd_lock:
            fd, self.fd = self.fd, -1
            if fd >= 0:
                os.close(fd)

    @property
    def closed(self):
        """True after close() of this object or of the store: bool."""
        return self.hub == NULL

    def fileno(self):
        """The eventfd, which is readable when messages arrived, or after wake()."""
        return self.fd

    def watch(self, topic, queue_id):
        """Reports arrivals of this queue, until unwatch was called as often as watch."""
        cdef bytes name = utf8(topic, "topic")
        cdef int32_t number = queue_id
        cdef Queue *q
        self.store._enter()
        if self.hub == NULL:
            raise errors.StoreStateError("this hub of arrivals is closed")
        q = queues_find(self.store.queues, name, <int32_t> len(name), number, True)
        if q == NULL or hub_watch(self.hub, q) < 0:
            raise MemoryError("queue")
        self._count(1)

    def unwatch(self, topic, queue_id):
        """Undoes one watch(). Works also after the store was closed."""
        cdef bytes name = utf8(topic, "topic")
        cdef int32_t number = queue_id
        cdef Queue *q
        if self.hub == NULL or self.store.queues == NULL or self.store.alive[0] != 1:
            return
        q = queues_find(self.store.queues, name, <int32_t> len(name), number, False)
        if q != NULL:
            hub_unwatch(self.hub, q)
            self._count(-1)

    def take(self):
        """Returns (topic, queue id, one past the newest queue offset) of each queue that got messages since the last take."""
        cdef Queue *some[AT_ONCE]
        cdef int i, n = AT_ONCE
        cdef int32_t number
        cdef int64_t end
        cdef bytes name
        found = []
        if self.store.alive[0] == 1 and self.fd >= 0:   # in a child of fork it is the parent's, who would miss what is read
            try:
                os.eventfd_read(self.fd)    # of a closed store, too: a loop comes back as long as it is readable
            except BlockingIOError:
                pass            # taken before it was signalled
        while n == AT_ONCE:
            self.store._enter()
            n = hub_take(self.hub, some, AT_ONCE) if self.hub != NULL else 0
            for i in range(n):
                self.store._enter()         # making a tuple may begin a collection, and that close the store
                name, number = some[i].topic[:some[i].topic_size], some[i].queue_id
                end = rmq_load(&some[i].max_offset)
                found.append((name.decode("utf-8", "surrogatepass"), number, end))
        return found

    def wake(self):
        """Makes the eventfd readable."""
        with self.fd_lock:
            if self.fd >= 0:
                os.eventfd_write(self.fd, 1)

    def close(self):
        """Stops the reports. Idempotent. Does nothing in a child of fork."""
        if self.store.alive[0] == 1:
            self._release()
