# Futures of puts. A future is done when the log is flushed beyond its message: whoever asks compares two numbers, and nobody
# has to touch each future. One native thread a store flushes ahead of who asks, and signals those who cannot ask: event loops
# and the thread that runs callbacks, each through an eventfd, once a flush.
from libc.stdint cimport int64_t

from rmq_store.commitlog._log cimport Log
from rmq_store.io._sync cimport pthread_t, rmq_event, rmq_mutex
from rmq_store.writer._put cimport PutResult, StorePut

cdef struct Sink:
    Sink *next
    int fd                      # eventfd of the owner
    int armed                   # atomic: somebody behind it waits

cdef struct Ahead:
    Log *log
    int64_t wanted              # the log has to become durable up to here
    int64_t told                # the thread only: up to here sinks were signalled
    rmq_event more
    rmq_mutex lock              # the list of sinks
    Sink *sinks
    pthread_t thread
    int asleep
    int stop
    bint running


cdef class PutFuture:
    cdef StorePut _store        # None once the outcome is known
    cdef PutResult _result
    cdef object _error
    cdef object _waiter         # what a Sunk gives back or resolves
    cdef PutFuture _origin      # a second one who waits stands in the list with a copy
    cdef int64_t _end
    cdef int64_t _since         # ns, when the waiting began

    cdef bint _peek(self) except -1
    cdef int _settle(self, object timeout) except -1


cdef class Completer:
    cdef StorePut _store
    cdef Ahead *_ahead
    cdef object _callbacks      # Callbacks, from the first one on
    cdef object _starting       # a lock, only ever tried
    cdef bint _closed

    cdef int _want(self, int64_t end) except -1


cdef class Sunk:
    # Futures that somebody waits for behind one eventfd, in the order of their coming.
    cdef Completer _completer
    cdef Sink *_sink
    cdef list _waiting

    cdef void _free(self)
    cdef list _take(self)
    cdef int64_t _now(self)


cdef PutFuture future_new(StorePut store, PutResult result, bint wants)
