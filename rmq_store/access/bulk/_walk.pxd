# Walking a part of one CommitLog file, from any byte: who finds the records, what lies between them, and where they end.
#
# The file is only read. It may belong to a live store of any maker: nothing is locked, nothing written, and no size in it is
# believed before it was compared with the file's length as it was when the walk began.
#
# A candidate is a place where a whole record lies whose own physicalOffset is this very place. A sequential walk goes from
# record to record and, where there is none, to the next candidate; what is between is a bad region and belongs to the split in
# which it begins. A walk that begins inside the file looks back over max_record, the longest record there may be: every record
# of the sequential walk is a candidate there, so where no two candidates overlap, the last one says where the walk continues.
# Where two do (a body may hold the image of a record, even one that names its future place), it walks from the file's start.
from libc.stdint cimport int64_t

from rmq_store.base.io._io cimport rmq_io
from rmq_store.codec._bad cimport Bad
from rmq_store.codec._record cimport RecordView

cdef enum Step:
    STEP_RECORD = 0         # view holds the record at `at`
    STEP_END = 1            # no more records of this part
    STEP_BAD = 2            # bad_begin, bad_end, bad_kind say what was stepped over; continue
    STEP_PAUSE = 3          # pinned, and the next record is not in the window

cdef enum Verify:
    VERIFY_NONE = 0         # lengths and the record's own offset: never less
    VERIFY_HEADER = 1       # also what no store writes: an illegal topic, a negative queue
    VERIFY_CRC = 2          # also the body's CRC, and __CRC32# where the record has one

cdef struct Window:
    # Bytes of a file: all of it mapped, or a piece of it read.
    const rmq_io *io
    unsigned char *map
    unsigned char *buffer
    int64_t size            # of the file, when it was opened
    int64_t at              # what the buffer holds: [at, at + length)
    int64_t length
    int64_t capacity
    int64_t piece           # how much is read at once, if no more is needed; may be changed after window_open
    int fd
    bint pinned             # somebody looks into the buffer: it must not change
    int error               # -errno of a failed read

cdef struct Walk:
    Window w
    int64_t start           # log offset of the file's first byte
    int64_t at              # position in the file, as all below
    int64_t end             # records that begin before it
    int64_t first           # where the first record of the part began, -1 none
    int64_t tail            # newest file: where its data ended, -1 not met
    int64_t bad_begin
    int64_t bad_end
    int64_t max_record
    Bad bad_kind
    int verify
    bint newest             # nothing but zeros, or a half-written record, may follow the last one
    int64_t whole_before    # newest: records stored before it (ms) nobody is writing any more: their zeros are their own

cdef int window_open(Window *w, const rmq_io *io, const char *path, bint mapped) noexcept nogil      # 0 or -errno
cdef void window_close(Window *w) noexcept nogil
# The byte at `at`, with min(need, what is left) more; *available says how many. NULL: w.error, or pinned and not there.
cdef const unsigned char *window_at(Window *w, int64_t at, int64_t need, int64_t *available) noexcept nogil
# To the first record that begins at or behind `begin`; `aligned`: one begins there. 0 or -errno.
cdef int walk_begin(Walk *k, int64_t begin, int64_t end, bint aligned) noexcept nogil
# One step; the caller moves on with walk_take after STEP_RECORD. Negative: -errno.
cdef int walk_next(Walk *k, RecordView *v) noexcept nogil
cdef inline void walk_take(Walk *k, const RecordView *v) noexcept nogil:
    if k.first < 0:
        k.first = k.at
    k.at += v.size
# The first candidate that begins in [begin, end); -1 none, or -errno.
cdef int64_t walk_candidate(Walk *k, int64_t begin, int64_t end) noexcept nogil
