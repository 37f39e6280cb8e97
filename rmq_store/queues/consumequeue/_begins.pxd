# A queue that another process writes begins: its first file is there, or there again. It may have been deleted, and have begun
# anew in files of the same names, or of the other kind. The follower's thread; _follow.pyx reads on in what begins.
from libc.stdint cimport int32_t, int64_t

from rmq_store.queues.consumequeue._descriptors cimport UnitFiles
from rmq_store.queues.consumequeue._state cimport QueueState, TableState
from rmq_store.queues.consumequeue._structs cimport Queue, QueueTable

cdef enum:
    LEADS = 1
    LED = 2
    LEADS_ON = 3

# LEADS: the record that an entry leads to is there, whole, and has its entry at that queue offset. LEADS_ON: so, and it has
# another one behind, as its own queue offset left a gap. LED: it was deleted with its file of the log. 0: none of it; -errno.
ctypedef int (*EntryLeads)(void *ctx, const Queue *q, int64_t index, int64_t physical, int32_t size) noexcept nogil

cdef enum:
    FOLLOW_UNITS = 64               # that follow_units reads at most
    FOLLOW_PATIENCE = 64            # looks in vain before a queue is looked at now and then only
    OTHER_KIND = 2

cdef struct Unit:
    int64_t index, next_index           # queue offsets of its first message, and behind its last
    int64_t physical
    int32_t size

# The unit at `u`, of a batch queue or not; index: of a plain queue, the queue offset of its place. False: nothing is there.
cdef bint follow_unit(bint batched, const unsigned char *u, int64_t index, Unit *out) noexcept nogil
# Units from that place on, written or not, up to the end of their file. 0: no such file; -errno.
cdef int64_t follow_units(TableState *t, UnitFiles *f, int64_t position, int64_t unit_size,
                          unsigned char *out) noexcept nogil
# The queue expects the entry of the record at that log offset. looks: in vain, before it is looked at now and then only.
cdef void queue_look_for(TableState *t, Queue *q, int64_t physical, int looks) noexcept nogil
# Nobody knows a record of another life, but there may have been one: it is looked for.
cdef inline void queue_may_be_anew(const Queue *q, QueueState *s) noexcept nogil:
    if s.anew_at == 0:
        s.anew_at = max(q.max_physical_offset, 0) + 1
# What was known of the queue was of another life, or is gone. physical: the log offset of the first record of the life that
# begins, or where the last one ended.
cdef void queue_forget(TableState *t, Queue *q, int64_t physical) noexcept nogil
# 1: the queue begins in the first file that is there, and what was known of it was of another life, or nothing. OTHER_KIND:
# so, in a file of the other kind; queue_change_kind is due. 0; -errno.
cdef int queue_begins(TableState *t, Queue *q, int64_t below, EntryLeads leads, void *ctx) noexcept nogil
# Its topic gets queues of the other kind. No queue of the topic is in the row of those that expect entries. 0 or -errno.
cdef int queue_change_kind(TableState *t, Queue *changed) noexcept nogil

# Its state, which says from the first time on how far the queue has been read. NULL: no memory.
cdef QueueState *queue_kept(TableState *t, Queue *q) noexcept nogil
# Under round_lock. The log begins at `physical` now: so do the queues. moved: since the last call; else only those are asked
# that could not tell then, as the writer's recovery was about to bring an entry back, or the queue began anew. 0 or -errno: of
# one queue, which is asked again.
cdef int queues_follow_min(QueueTable *t, int64_t physical, bint moved) noexcept nogil
# Records before `physical` were deleted that nobody has walked over: any queue may have entries of them, or have begun anew.
cdef void queues_were_cleaned(QueueTable *t, int64_t physical) noexcept nogil
