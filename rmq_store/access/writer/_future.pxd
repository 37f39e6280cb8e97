# Futures of puts. A future is done when the log is flushed beyond its message: whoever asks compares two numbers, and nobody
# has to touch each future. Who cannot ask, event loops and the thread that runs callbacks, is signalled by _ahead.
from libc.stdint cimport int64_t

from rmq_store.access.writer._ahead cimport Ahead, Sink
from rmq_store.access.writer._put cimport WAIT_DEVICE, WAIT_REPLICA, PutResult, StorePut, patience_ns
from rmq_store.base.io._sync cimport rmq_load


cdef enum:
    SLAVES_NOW = 0      # the device has had its time, and has it


cdef class PutFuture:
    cdef StorePut _store        # None once the outcome is known
    cdef PutResult _result
    cdef object _error
    cdef object _waiter         # what a WaitedFutures gives back or resolves
    cdef PutFuture _origin      # a second one who waits stands in the list with a copy
    cdef int64_t _end
    cdef int _wants             # WAIT_ bits
    cdef bint _on_device        # _since is from then on
    cdef int64_t _since         # ns, when the waiting began

    cdef bint _peek(self) except -1
    cdef bint _acknowledged(self) except -1
    cdef int _settle(self, object timeout) except -1
    cdef PutResult _outcome(self, object timeout)


cdef class Awaited
cdef class WaitedFutures


cdef class Completer:
    cdef StorePut _store
    cdef Ahead *_ahead
    cdef object _callbacks      # Callbacks, from the first one on
    cdef object _starting       # a lock, only ever tried
    cdef object _making         # StoreLock: the thread of callbacks is being made
    cdef tuple _last            # the loop whose task waited last and its WaitedFutures, together: several threads have loops
    cdef object _turn_loop      # the loop whose reader wakes its tasks just now, its WaitedFutures and its thread; or NULL
    cdef WaitedFutures _turn_waited
    cdef void *_turn_thread
    cdef bint _closed
    # By what was waited for, WAIT_ bits or SLAVES_NOW: what is below _late_end has been waited for in vain for _late_ns.
    cdef int64_t[4] _late_end
    cdef int64_t[4] _late_ns

    cdef int _want(self, int64_t end, int wants) except -1
    cdef bint _loop_here(self, Awaited a) except -1


cdef class WaitedFutures:
    # Futures that somebody waits for behind one eventfd, in the order of their coming.
    cdef Completer _completer
    cdef Sink *_sink
    cdef list _waiting
    cdef public object watch    # called by the first add after `watched` was false; a device that is silent tells nobody
    cdef public bint watched
    cdef int64_t _deadline_ns   # flush_deadline_ms when overdue_in was last asked: `watch` is called where it is shorter now

    cdef bint _add(self, PutFuture f, waiter) except -1
    cdef void _free(self)
    cdef list _take(self)
    cdef int64_t _now(self)


cdef class Awaited:
    cdef public bint _asyncio_future_blocking
    cdef PutFuture _future
    cdef object _loop
    cdef WaitedFutures _waited             # the loop's
    cdef object _callback, _context     # the task's; None before it waits, and once it has been called
    cdef object _cancelled
    cdef bint _begun

    cdef bint _waits(self) except -1
    cdef int _later(self) except -1


cdef PutFuture future_new(StorePut store, PutResult result, int wants)


# These of a future whose _store is there.

cdef inline int lacks_of(PutFuture f):
    # Its WAIT_ bits, without the device where that has it: slaves are asked by _acknowledged.
    cdef StorePut s = f._store
    return f._wants & ~WAIT_DEVICE if s.log != NULL and rmq_load(&s.log.flushed) >= f._end else f._wants


cdef inline int phase_of(PutFuture f, int lacks):
    # What of Completer._late_end counts for it.
    return lacks & (WAIT_DEVICE | WAIT_REPLICA) if lacks == f._wants else SLAVES_NOW


cdef inline int64_t left_of(PutFuture f, Completer c, int phase, int lacks):
    # How long a wait that begins now lasts, ns: 0 where somebody else's was its own, too, and no shorter than its own would be.
    cdef int64_t patience = patience_ns(f._store, lacks)
    return 0 if f._store.log == NULL or (f._end <= c._late_end[phase] and patience <= c._late_ns[phase]) else patience


cdef inline int64_t stored_for(PutFuture f, int phase):
    # The wait that begins now is that of all messages below this.
    return rmq_load(&f._store.log.wrote if phase != SLAVES_NOW else &f._store.log.flushed)


cdef inline void note_late(Completer c, int phase, int64_t end, int64_t patience):
    # A mark that says less than the one there changes nothing. Else it is the deadline of now that counts.
    if end > c._late_end[phase] or patience > c._late_ns[phase]:
        c._late_end[phase], c._late_ns[phase] = end, patience


cdef inline bint is_late(PutFuture f, int64_t now):
    # Of one that somebody looks at now and again. Once the device has it, slaves have their time.
    cdef int lacks = lacks_of(f)
    if f._since == 0 or (lacks != f._wants and not f._on_device):
        f._on_device, f._since = lacks != f._wants, now
    return now - f._since >= patience_ns(f._store, lacks)
