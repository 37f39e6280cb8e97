"""Where new CommitLog files are made (RocketMQ: MultiPathMappedFileQueue.tryCreateMappedFile). Contract in _places.pxd."""
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, realloc

from rmq_store.base.io._sync cimport EINVAL, ENOMEM, rmq_load32
from rmq_store.base.segment._file cimport text_copy


cdef int places_add(MakePlaces *p, const char *dir, const char *tmp) noexcept nogil:
    cdef MakePlace *all
    cdef MakePlace *place
    if p.count == PLACES_MAX:
        return -EINVAL
    all = <MakePlace *> realloc(p.all, (p.count + 1) * sizeof(MakePlace))
    if all == NULL:
        return -ENOMEM
    p.all = all
    place = &all[p.count]
    place.dir = text_copy(dir)
    place.tmp = text_copy(tmp)
    place.full = 0
    p.count += 1                # with this, places_free frees what there is of it
    return -ENOMEM if place.dir == NULL or place.tmp == NULL else 0


cdef void places_free(MakePlaces *p) noexcept nogil:
    cdef int i
    for i in range(p.count):
        free(p.all[i].dir)
        free(p.all[i].tmp)
    free(p.all)
    p.all = NULL
    p.count = 0


cdef inline bint _taken(const MakePlace *place, uint64_t refused, int i, bint full_too) noexcept nogil:
    return not (refused >> i & 1) and (full_too or not rmq_load32(&place.full))


cdef MakePlace *place_of(MakePlaces *p, int64_t number, uint64_t refused) noexcept nogil:
    # Its number modulo the count of the directories whose disk is not full; where the disks of all are, of all.
    cdef int64_t count, nth
    cdef int i, full_too
    for full_too in range(2):
        count = 0
        for i in range(p.count):
            count += _taken(&p.all[i], refused, i, full_too)
        if count == 0:
            continue
        nth = number % count
        for i in range(p.count):
            if _taken(&p.all[i], refused, i, full_too):
                if nth == 0:
                    return &p.all[i]
                nth -= 1        # another thread may set `full` meanwhile: then the second round finds one
    return NULL
