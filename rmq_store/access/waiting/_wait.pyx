"""get and wait_for_message that hold until a message is there (RocketMQ: PullRequestHoldService, MessageArrivingListener).

A waiter sleeps on the event of its queue, without the GIL, and is woken by the dispatcher; nothing polls, so waiters that wait
cost nothing. One exception: the main thread looks every 100 ms whether a signal came between its last look and its sleep.
"""
import threading
import time
import weakref

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t

from rmq_store.access.reader._checked cimport whole
from rmq_store.access.reader._query cimport StoreQuery
from rmq_store.access.writer._arguments cimport integer_of
from rmq_store.access.writer._put cimport Topic
from rmq_store.base.io._sync cimport rmq_event_ticket, rmq_event_wait, rmq_event_wake, rmq_load, rmq_load32
from rmq_store.log.dispatch._dispatch cimport dispatch_sleeper
from rmq_store.queues.consumequeue._batches cimport topic_batched
from rmq_store.queues.consumequeue._queue cimport Queue, queues_at, queues_count, queues_find

from rmq_store import errors
from rmq_store.base.io.threads import members
from rmq_store.status import GetStatus

cdef enum:
    WAKE_AT_ONCE = 16

cdef int64_t SLICE_NS = 100_000_000
# Where RocketMQ answers PULL_NOT_FOUND and holds the request; and where it makes the consumer ask again further on.
cdef frozenset _HOLD = frozenset((GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.NO_MESSAGE_IN_QUEUE))
cdef frozenset _FURTHER = frozenset((GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING, GetStatus.OFFSET_FOUND_NULL))


cpdef int64_t wait_ns(object seconds, str name="timeout") except? -1:
    """A time to wait, in nanoseconds: int, None for ever the greatest. Raises ArgumentIllegal for what is none; `name`: of the
    argument."""
    if seconds is None:
        return INT64_MAX
    if not isinstance(seconds, (int, float)) or not seconds >= 0:
        raise errors.illegal(name, seconds, "give seconds, 0 or more" + (", True or None" if name == "wait" else ""))
    return INT64_MAX if seconds > 1e9 else <int64_t> (<double> seconds * 1e9)


cdef class StoreWait(StoreQuery):
    """The waiting half of reading."""

    def __cinit__(self):
        self._hubs = weakref.WeakSet()

    def _may_wait(self):
        """Raises StoreStateError where nothing can arrive, and what else ends a wait."""
        self._enter()
        if self.readonly and self.follower == NULL:
            raise errors.StoreStateError(f"the store at {self.path} is open read-only and shows what was there when it was "
                                         "opened: open it with readonly=True, follow=True to wait for what another process "
                                         "puts")
        if self.problem is not None:
            raise self.problem

    cdef Queue *_queue_to_wait_for(self, object topic, object queue_id) except NULL:
        self._may_wait()
        cdef Topic t = self._topic(topic)
        cdef int64_t n = integer_of(queue_id, "queue_id", 0, 0x7FFFFFFF)
        self._enter()
        cdef Queue *q = queues_find(self.queues, t.text, t.size, <int32_t> n, False)
        if q == NULL and self.follower != NULL and not topic_batched(self.queues, t.text, t.size):
            self._look_for_batch_topics()       # its kind is decided now
            self._enter()
        if q == NULL and topic_batched(self.queues, t.text, t.size):
            q = queues_find(self.queues, t.text, t.size, <int32_t> n, True)
            if q == NULL:
                raise MemoryError("queue")
        return q if q != NULL else self._queue(t, queue_id)

    cdef int _sleep(self, Queue *q, int ticket, int64_t timeout_ns, bint sliced) except -1:
        # Until the queue's event, a signal, or the time is over. The caller looks for itself what is true now.
        if sliced and timeout_ns > SLICE_NS:
            timeout_ns = SLICE_NS
        self.calls += 1
        with nogil:
            dispatch_sleeper(self.dispatcher, 1)
            rmq_event_wait(&q.arrived, ticket, -1 if timeout_ns == INT64_MAX else timeout_ns)
            dispatch_sleeper(self.dispatcher, -1)
        self.calls -= 1
        if sliced:
            PyErr_CheckSignals()
        if self.problem is not None:
            raise self.problem
        return 0

    def _set_problem(self, problem):
        """Whoever waits for a message gets this exception from now on; None: nobody does."""
        self.problem = problem
        if problem is not None:
            self._wake_sleepers()

    def _wake_waiters(self):
        """close() has begun: whoever waits for a message finds that out."""
        self._wake_sleepers()
        for hub in members(self._hubs):
            hub._detach()

    def _wake_sleepers(self):
        """Lets every thread that waits for a message look again.

        A few queues at a time: ten thousand threads that ask for the GIL at once keep each other from it for minutes.
        """
        cdef int64_t i, left
        cdef Queue *q
        cdef int woken = 0, looks = 0
        for i in range(queues_count(self.queues)):
            q = queues_at(self.queues, i)
            if rmq_load32(&q.arrived.sleepers) == 0:
                continue
            woken += rmq_load32(&q.arrived.sleepers)
            rmq_event_wake(&q.arrived)
            if woken >= WAKE_AT_ONCE:
                left = self.calls - woken
                looks = 0
                while self.calls > left and looks < 100:
                    time.sleep(0.0002)
                    looks += 1
                woken = 0

    def wait_for_message(self, topic, queue_id, offset, timeout=None):
        """Waits until the queue has a message at `offset`. Returns True, or False after `timeout` seconds (None: no limit).

        The dispatcher wakes the call; it does not poll and does not hold the GIL. Ctrl-C ends it. Raises StoreClosed if the
        store closes, StoreStateError if the store is read-only and does not follow, OSError and StoreRefusesToLoad if it cannot
        read the files that it follows. Thread-safety: any. RocketMQ: MessageArrivingListener.
        """
        cdef int64_t left = wait_ns(timeout)
        cdef int64_t wanted = whole(offset, "offset", INT64_MIN, INT64_MAX), end = 0
        cdef Queue *q = self._queue_to_wait_for(topic, queue_id)
        cdef bint sliced = threading.current_thread() is threading.main_thread()
        cdef int ticket
        if left != INT64_MAX:
            end = self.io.mono_ns(self.io.ctx) + left
        while True:
            self._enter()
            ticket = rmq_event_ticket(&q.arrived)
            if rmq_load(&q.max_offset) > wanted:
                return True
            if left <= 0:
                return False
            self._sleep(q, ticket, left, sliced)
            if left != INT64_MAX:
                self._enter()
                left = end - self.io.mono_ns(self.io.ctx)

    def _get_waiting(self, topic, queue_id, offset, max_count, tags, sql, max_bytes, wait):
        """get(wait=): asks, sleeps until something arrives, asks again."""
        cdef int64_t left
        cdef int64_t end
        cdef Queue *q
        cdef bint sliced
        cdef int ticket
        if wait is True:
            wait = self.options.long_polling_timeout_ms / 1000
        left = wait_ns(wait, "wait")
        if left == 0:
            return self.get(topic, queue_id, offset, max_count, tags, sql=sql, max_bytes=max_bytes)
        q = self._queue_to_wait_for(topic, queue_id)
        sliced = threading.current_thread() is threading.main_thread()
        end = INT64_MAX if left == INT64_MAX else self.io.mono_ns(self.io.ctx) + left
        while True:
            self._enter()
            ticket = rmq_event_ticket(&q.arrived)
            result = self.get(topic, queue_id, offset, max_count, tags, sql=sql, max_bytes=max_bytes)
            status = result.status
            if status in _FURTHER and result.next_offset > offset:
                offset = result.next_offset
                if offset < result.max_offset:
                    continue
            elif status not in _HOLD or (status is GetStatus.NO_MESSAGE_IN_QUEUE and offset != 0):
                return result
            self._enter()
            if end != INT64_MAX:
                left = end - self.io.mono_ns(self.io.ctx)
                if left <= 0:
                    return result
            self._sleep(q, ticket, left, sliced)
