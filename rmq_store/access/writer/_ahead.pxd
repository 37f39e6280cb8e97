# One native thread a store flushes ahead of who asks for a future's outcome, and signals those who cannot ask, each through an
# eventfd, once a flush. start and stop: under the GIL; the others: any thread.
from libc.stdint cimport int64_t

from rmq_store.base.io._sync cimport pthread_t, rmq_event, rmq_mutex
from rmq_store.access.writer._put cimport Replicas
from rmq_store.log.commitlog._log cimport Log

cdef struct Sink:
    Sink *next
    int fd                      # eventfd of the owner
    int armed                   # atomic: somebody behind it waits

cdef struct Ahead:
    Log *log
    int64_t wanted              # the log has to become durable up to here
    int64_t told                # the thread only: up to here sinks were signalled
    Replicas *replicas          # the store's; NULL: nobody here waits for slaves
    int64_t replicate           # a slave has to acknowledge the log up to here
    int acks                    # at most so many slaves have to
    int *watched                # atomic: slaves may not have acknowledged all that is wanted; they wake `more` when they do
    bint gathers                # what is put while slaves lack much of what went before goes to them later, in larger pieces
    int64_t pushed              # the thread only: up to here slaves may have the log
    int64_t moves               # the thread only: replicas.moves when sinks were last signalled
    rmq_event *more             # this and `watched` are the store's, which outlives the thread: TELLS_ of its Replicas
    rmq_mutex lock              # the list of sinks
    Sink *sinks
    pthread_t thread
    int asleep
    int stop
    bint running

cdef int ahead_start(Ahead *a) noexcept nogil
cdef void ahead_stop(Ahead *a) noexcept nogil
cdef void ahead_signal(Ahead *a) noexcept nogil
# By one thread at a time: so many slaves have to acknowledge the log up to `end`.
cdef void ahead_replicate(Ahead *a, int64_t end, int acks) noexcept nogil
cdef void ahead_add(Ahead *a, Sink *s) noexcept nogil       # the sink is the caller's
cdef void ahead_remove(Ahead *a, Sink *s) noexcept nogil
