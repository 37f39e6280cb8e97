# Delivery of delayed messages: one native thread, asleep until the earliest message is due, a new one waits, or somebody set
# the clock. Nothing here touches Python. Source: ScheduleMessageService.executeOnTimeup, messageTimeup (4.9.8).
from libc.stdint cimport int32_t, int64_t

from rmq_store.base.io._sync cimport pthread_t
from rmq_store.log.commitlog._log cimport Log
from rmq_store.queues.consumequeue._arrivals cimport Hub
from rmq_store.queues.consumequeue._queue cimport Queue, QueueTable

cdef enum:
    MARKS_MAX = 128

cdef struct Mark:
    # Messages below queue offset `end` that no earlier mark covers were there at `seen`.
    int64_t end
    int64_t seen                    # monotonic ns

cdef struct Level:
    Queue *queue
    int64_t delay_ms
    int64_t offset                  # atomic: the next message to deliver
    int64_t next_due                # atomic: when, wall ms; INT64_MAX nothing waits
    Mark *marks                     # MARKS_MAX, in use only while the clock is behind the log
    int32_t marks_used
    bint ext

cdef struct Timer:
    Log *log
    QueueTable *queues
    Hub *hub                        # arrivals in the queues of the levels
    const bint *refused             # the store takes no puts: the disk is full
    Level *levels
    int32_t count
    int arrivals_fd                 # eventfd: arrivals, and to wake the thread
    int clock_fd                    # timerfd on the wall clock; ends early when the clock is set
    bint compat5
    bint record_crc
    bint sync_mode
    int64_t delivered               # atomic counters
    int64_t skipped                 # atomic: cannot be delivered, see last_skipped
    int64_t last_skipped            # physical offset
    int64_t delivered_end           # atomic: end in the log of what was delivered last
    int64_t failures                # atomic: tries that will be repeated
    int last_error                  # atomic
    unsigned char *scratch          # properties of one message
    pthread_t thread
    int stop
    bint running


cdef class DelayTimer:
    cdef object store
    cdef Timer *timer
    cdef int *alive
    cdef int fds[2]
    cdef int _let_go(self) except -1
    cdef int _close_fds(self) except -1
