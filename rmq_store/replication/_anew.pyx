"""The native face of queues that begin anew in a slave's log (log/dispatch/_anew). Used by anew.py alone."""
from libc.stdint cimport int32_t, int64_t

from rmq_store.access.core._core cimport StoreCore
from rmq_store.log.dispatch._anew cimport (ANEW_MAX, Anew, Kind, anew_find, anew_kind, anew_pass, anew_release,
                                           anew_wait)
from rmq_store.log.dispatch._dispatch cimport Dispatcher
from rmq_store.queues.consumequeue._queue cimport queues_at

import os

cdef int64_t LOOK_NS = 1_000_000_000


cdef class Halts:
    """Where the dispatcher of a slave waits. The store has ended whoever uses it before the store frees the dispatcher."""

    cdef Dispatcher *dispatcher

    def __init__(self, StoreCore store not None):
        store._enter()
        self.dispatcher = store.dispatcher

    def wait(self):
        """Until the dispatcher waits, release() or a second: bool, True if it waits. Without the GIL."""
        cdef bint waits
        with nogil:
            waits = anew_wait(self.dispatcher, LOOK_NS)
        return waits

    def find(self, StoreCore store not None):
        """The queues that begin anew: list of (its number, topic, queue id, log offset of its first record). Raises OSError."""
        cdef Anew[ANEW_MAX] found
        cdef int count, i
        cdef int64_t number
        cdef int32_t queue_id
        cdef bytes name
        store._enter()
        store.calls += 1
        with nogil:
            count = anew_find(self.dispatcher, found)
        store.calls -= 1
        if count < 0:
            raise OSError(-count, os.strerror(-count), store.path)
        told = []
        for i in range(count):
            number = 0
            while queues_at(store.queues, number) != found[i].queue:
                number += 1
            name, queue_id = found[i].queue.topic[:found[i].queue.topic_size], found[i].queue.queue_id
            told.append((number, name.decode("utf-8", "surrogatepass"), queue_id, found[i].at))
        return told

    def other_kind(self, StoreCore store not None):
        """Where the dispatcher waits at a record that begins a queue of the other kind: (topic, whether its queues are to be
        batch queues, log offset of the record, its queue id); else None. Raises OSError."""
        cdef Kind found
        cdef bytes name
        cdef int rc
        store._enter()
        store.calls += 1
        with nogil:
            rc = anew_kind(self.dispatcher, &found)
        store.calls -= 1
        if rc < 0:
            raise OSError(-rc, os.strerror(-rc), store.path)
        if rc == 0:
            return None
        name = <bytes> found.topic
        return name.decode("utf-8", "surrogatepass"), bool(found.batched), found.at, found.queue_id

    def pass_by(self, int64_t at):
        """The record there cannot begin its queue anew: dispatch continues with it all the same."""
        with nogil:
            anew_pass(self.dispatcher, at)

    def release(self):
        """The dispatcher looks again, and wait() returns."""
        with nogil:
            anew_release(self.dispatcher)
