# Queue files made before they are needed, by the thread that makes log files ahead (base/segment/_allocator.pyx).
#
# Each file is of its full length on the device before it gets its name; that sync, in the dispatcher at the end of a queue's
# file, is a pause of dispatch, and over the pool of the producers too. Queues fill at the same pace: their files end together,
# so a spare is wished for when a quarter of a file is full, and all that are wished for share one commit of the journal.
#
# The first file of a new queue is needed at once. A store that has got FIRST_FEW new queues gets more: from then on spares are
# kept for those, twice as many as there were new queues so far, up to SPARES_MAX. While the store is being opened nobody makes
# any yet: whoever fills queues again makes them, many at a time.
from libc.stdint cimport int64_t

from rmq_store.base.io._io cimport rmq_io
from rmq_store.base.io._sync cimport rmq_event, rmq_mutex

cdef enum:
    FILES_PATH_SIZE = 4096
    SPARES_MAX = 1024
    SPARES_NEXT_MAX = 64    # for queues that continue in their next file
    SPARES_LOW = 16         # fewer are not worth waking the maker
    FIRST_FEW = 16

cdef struct Spares:
    const rmq_io *io
    char *dir
    int64_t file_size
    rmq_event *maker        # woken by a wish (atomic); NULL: nobody makes any yet
    rmq_mutex lock
    int wished
    int making              # of them, those that the maker is at
    bint opening            # the one thread there is makes them itself
    int64_t new_queues      # the dispatcher's: made since the store was opened
    int64_t first           # those there are have the numbers [first, end)
    int64_t end

cdef Spares *spares_new(const rmq_io *io, const char *dir, int64_t file_size) noexcept nogil
cdef void spares_free(Spares *s) noexcept nogil         # leaves files alone
cdef void spares_wish(Spares *s) noexcept nogil         # one more; any thread
cdef void spares_wish_first(Spares *s) noexcept nogil   # a new queue needs its first file; the dispatcher
# The maker's: makes what is wished for. True if there was anything to do. What fails is no longer wished for: whoever needs the
# file makes it and tells the error.
cdef bint spares_make(Spares *s) noexcept nogil
cdef void spares_clear(Spares *s) noexcept nogil        # deletes those that are left; nobody makes any more
# Renames one to `path`; its descriptor. -errno: there is none (ENOENT), or it is of no use, and gone.
cdef int spares_take(Spares *s, const char *path) noexcept nogil
