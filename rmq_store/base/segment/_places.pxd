# Where new CommitLog files are made: one directory, or several (RocketMQ: MultiPathMappedFileQueue). The list is fixed once the
# allocator's thread runs. `full` is set by the control thread, which measures the disks, and by the allocator.
from libc.stdint cimport int64_t, uint64_t

cdef enum:
    PLACES_MAX = 64

cdef struct MakePlace:
    char *dir
    char *tmp                   # on the same file system: a file gets its name by a rename
    int full                    # atomic: its disk is full; it gets no file while another directory is not

cdef struct MakePlaces:
    MakePlace *all              # ascending by `dir`
    int count

cdef int places_add(MakePlaces *p, const char *dir, const char *tmp) noexcept nogil     # 0 or -errno
cdef void places_free(MakePlaces *p) noexcept nogil
# Where file `number` is made; `refused`: a bit for each place that is out of the question. NULL: none is left.
cdef MakePlace *place_of(MakePlaces *p, int64_t number, uint64_t refused) noexcept nogil
