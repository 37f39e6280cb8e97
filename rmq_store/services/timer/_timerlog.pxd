# Timer messages: one native thread, asleep until the next tick of the wheel while something is pending, and else until a
# message comes. Nothing in it touches Python. Source: TimerMessageStore, TimerWheel, TimerLog (5.3.3).
from libc.stdint cimport int32_t, int64_t

from rmq_store.base.io._io cimport rmq_io
from rmq_store.base.io._sync cimport rmq_mutex
from rmq_store.queues.consumequeue._queue cimport Queue
from rmq_store.services.delivery._deliverer cimport Deliverer
from rmq_store.services.timer._once cimport Once
from rmq_store.services.timer._recalls cimport Recalls

cdef enum:
    LOG_UNIT = 52
    LOG_TAIL = 16                   # of a file: room for a blank
    # Of a unit; its size comes first.
    AT_PREVIOUS = 4
    AT_MAGIC = 12
    AT_ENTERED = 16
    AT_DELAY = 24
    AT_PHYSICAL = 28
    AT_SIZE = 36
    AT_TOPIC = 40
    AT_SEAL = 44                    # reserved, and 0, in RocketMQ, which never reads it
    LOG_SEAL = 0x554E4954           # of units that have a checksum
    SLOT_SIZE = 32
    WHEEL_SLOTS = 1209600           # upstream's 2 x 7 days of seconds
    WHEEL_PAGE = 4096
    WHEEL_PAGES = 9450
    TOPICS_MAX = 4096               # topics that are counted each by itself
    MAGIC_DEFAULT = 1
    MAGIC_ROLL = 2
    MAGIC_DELETE = 4

cdef struct Due:
    int64_t physical
    int64_t entered                 # ms: when it came into the timer log
    int32_t size
    int32_t magic
    int32_t topic                   # hash of it

cdef struct TopicCount:
    int32_t hash                    # of the topic, as its units have it
    int used                        # atomic
    int64_t count                   # atomic: messages that wait
    int64_t physical                # of one of its records

cdef struct Counted:
    # What timercheck may say: the copies that lie in the log behind `mark` are those of the messages that reading time and
    # offset do not count as delivered, no more and no fewer.
    int64_t read_ms
    int64_t offset
    int64_t mark
    int64_t keep                    # no message that waits then has its unit in files before it
    bint again                      # entries are still read a second time

cdef struct Wheel:
    Deliverer d
    Once once
    Queue *queue
    const rmq_io *io
    unsigned char *slots            # the wheel; pages that nothing was put into take no memory
    int *dirty                      # atomic, one a page: the file has another page
    int *used                       # one a page: something was put there
    TopicCount *topics
    char *directory                 # of the timer log
    int64_t file_size
    int64_t first                   # atomic: start of the first file
    int64_t limit                   # end of the last file
    int64_t keep                    # atomic: no message waits in files before it
    int fd                          # of the file that is written, which begins at fd_start
    int64_t fd_start
    int read_fd                     # of another one
    int64_t read_start
    int64_t end                     # atomic: where the next unit goes
    int64_t offset                  # atomic: next entry of the queue
    int64_t read_ms                 # atomic: the next slot to deliver
    int64_t done                    # so many messages of that slot are delivered: what is tried again begins behind them
    int64_t pending                 # atomic
    int64_t base_ms                 # where reading began
    int64_t loaded_end              # where the timer log ended when it was loaded
    rmq_mutex counted_lock
    Counted counted                 # under it
    int64_t first_ms                # the reading time that timercheck had at the open
    int64_t learn_max               # bytes that an open reads behind the mark
    int64_t known_offset            # entries below, due before known_ms, were delivered before the log was lost
    int64_t known_ms
    int64_t known_entered           # and of those that were rolled, the units came at this time or later
    int64_t again_to                # entries below were in the queue at the open, and are read a second time; 0: none
    int64_t *having                 # log offsets of records that have units, ascending, of entries that are read again
    int64_t having_count
    int64_t having_at
    Once rolled                     # messages that are in the queue once more
    int64_t turn_ms                 # slots before it are over
    int64_t closing_ms              # atomic: a recall that is stored behind this time of its slot may come too late
    int64_t seen_to                 # the log's end when the clock said turn_ms
    bint complete                   # dispatch has come there: the queue has each recall that was stored in time
    Recalls recalls                 # that stand in the queue behind the entry that is taken next, or were late themselves
    int64_t recalls_to              # queue offset: those before are known
    int64_t rolled_ms               # the least time of a message that was rolled, and is not taken from the queue again
    int64_t precision
    int64_t roll_ms
    int64_t congest
    bint scattered                  # a slot's units are not all in its chain: gather them by a walk over the log
    int dead                        # atomic: errno of a failed sync, after which nothing here can be trusted


cdef extern from * nogil:
    """
    #include <endian.h>
    #include <stdint.h>
    #include "rmq_atomic.h"
    static inline int32_t be32(const unsigned char *p) {
        return (int32_t)((uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]);
    }
    static inline int64_t be64(const unsigned char *p) {
        return (int64_t)((uint64_t)(uint32_t)be32(p) << 32 | (uint32_t)be32(p + 4));
    }
    static inline void put32(unsigned char *p, int32_t v) {
        uint32_t n = (uint32_t)v;
        p[0] = (unsigned char)(n >> 24); p[1] = (unsigned char)(n >> 16); p[2] = (unsigned char)(n >> 8);
        p[3] = (unsigned char)n;
    }
    static inline void put64(unsigned char *p, int64_t v) {
        put32(p, (int32_t)(v >> 32)); put32(p + 4, (int32_t)v);
    }
    /* Of a slot, which any thread may look at: each field whole. */
    static inline int32_t slot32(const unsigned char *p) { return (int32_t)be32toh((uint32_t)rmq_load32((const int *)p)); }
    static inline int64_t slot64(const unsigned char *p) { return (int64_t)be64toh((uint64_t)rmq_load((const int64_t *)p)); }
    static inline void slot_put32(unsigned char *p, int32_t v) { rmq_publish32((int *)p, (int)htobe32((uint32_t)v)); }
    static inline void slot_put64(unsigned char *p, int64_t v) { rmq_publish((int64_t *)p, (int64_t)htobe64((uint64_t)v)); }
    """
    int32_t slot32(const unsigned char *p)
    int64_t slot64(const unsigned char *p)
    void slot_put32(unsigned char *p, int32_t v)
    void slot_put64(unsigned char *p, int64_t v)
    int32_t be32(const unsigned char *p)
    int64_t be64(const unsigned char *p)
    void put32(unsigned char *p, int32_t v)
    void put64(unsigned char *p, int64_t v)


# The wall clock in ms, as the wheel counts it: no slot lies before the second one. A clock before 1970 stands there.
cdef int64_t wheel_clock(Wheel *t) noexcept nogil
cdef unsigned char *wheel_slot(Wheel *t, int64_t time_ms) noexcept nogil
cdef bint wheel_holds(Wheel *t, int64_t time_ms) noexcept nogil
cdef void wheel_clear(Wheel *t, int64_t time_ms) noexcept nogil
cdef void topic_add(Wheel *t, int32_t hash, int64_t physical, int64_t n) noexcept nogil
# A unit that is in the log: counted, and its slot leads to it.
cdef void wheel_revise(Wheel *t, int64_t time_ms, int64_t position, const unsigned char *u) noexcept nogil
# The slot that the unit at this position is in: that of its time. For a unit that was there when the log was loaded, the first
# slot where its time was past, or one on the way to its time where that is farther away than the wheel is long.
cdef int64_t unit_slot_ms(Wheel *t, const unsigned char *u, int64_t position) noexcept nogil
cdef bint unit_far(Wheel *t, const unsigned char *u, int64_t position) noexcept nogil
# Descriptor of the file that has this position, and the place in it. -errno. The timer's thread, or no thread yet.
cdef int timerlog_fd(Wheel *t, int64_t position, int64_t *at) noexcept nogil
cdef void timerlog_close(Wheel *t) noexcept nogil
cdef int timerlog_append(Wheel *t, unsigned char *unit, int64_t *where) noexcept nogil
cdef bint timerlog_good(Wheel *t, const unsigned char *u, int64_t position) noexcept nogil
# Makes the wheel from the log, and finds its end. known_ms: units before were delivered; known_end: units before are there, or
# the log is damaged. last: physical offset of the last unit's record, or -1. 1: damaged at t.end; 0; -errno.
cdef int timerlog_scan(Wheel *t, int64_t known_ms, int64_t known_end, int64_t *last) noexcept nogil
