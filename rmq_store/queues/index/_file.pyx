"""One index file: layout, put, select, cut (RocketMQ: IndexFile.java). Contract and picture of the layout in _file.pxd.

Order of a put: entry, published count, slot, header in the map. A reader loads the slot before the count, so whatever number it
finds in a slot of a healthy file is below the count it then sees, and that entry is whole.
"""
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset, strlen

from rmq_store.base.io._io cimport guard_add, guard_remove, rmq_identity_of, rmq_io, rmq_pwrite_all
from rmq_store.base.io._sync cimport (EINVAL, ENOMEM, rmq_add32, rmq_load, rmq_load32, rmq_prefetch, rmq_publish, rmq_publish32,
                                      rmq_swap32)
from rmq_store.base.segment._file cimport file_reserve
from rmq_store.codec._layout cimport (ENTRY_AT_KEY_HASH, ENTRY_AT_PHYSICAL_OFFSET, ENTRY_AT_PREVIOUS, ENTRY_AT_TIME_DIFF,
                                      INDEX_AT_BEGIN_PHYSICAL, INDEX_AT_BEGIN_TIMESTAMP, INDEX_AT_COUNT, INDEX_AT_END_PHYSICAL,
                                      INDEX_AT_END_TIMESTAMP, INDEX_AT_SLOT_COUNT, INDEX_ENTRY_SIZE, INDEX_HEADER_SIZE,
                                      INDEX_SLOT_SIZE)
from rmq_store.codec._record cimport rmq_get32, rmq_get64, rmq_put32, rmq_put64


cdef extern from *:
    """
    #include <fcntl.h>
    #include <stdint.h>

    /* Slots and the count are four-byte aligned in the map; readers of this and of other processes see them whole. */
    static inline int32_t index_word_load(const unsigned char *p) {
        return (int32_t)__builtin_bswap32(__atomic_load_n((const uint32_t *)p, __ATOMIC_ACQUIRE));
    }
    static inline void index_word_store(unsigned char *p, int32_t v) {
        __atomic_store_n((uint32_t *)p, __builtin_bswap32((uint32_t)v), __ATOMIC_RELEASE);
    }
    """
    enum: O_RDONLY, O_RDWR, O_CREAT, O_TRUNC, O_NOFOLLOW
    int32_t index_word_load(const unsigned char *p) nogil
    void index_word_store(unsigned char *p, int32_t v) nogil

cdef extern from "<time.h>" nogil:
    ctypedef long time_t
    struct tm:
        int tm_sec, tm_min, tm_hour, tm_mday, tm_mon, tm_year
    tm *localtime_r(const time_t *t, tm *out)

cdef enum:
    NAME_DIGITS = 17


# ---- life

cdef int64_t index_file_name_at(int64_t wall_ms) noexcept nogil:
    cdef time_t seconds = wall_ms // 1000
    cdef tm t
    localtime_r(&seconds, &t)
    return ((((((t.tm_year + 1900) * <int64_t> 100 + t.tm_mon + 1) * 100 + t.tm_mday) * 100 + t.tm_hour) * 100
             + t.tm_min) * 100 + t.tm_sec) * 1000 + wall_ms % 1000


cdef char *_path(const char *dir, int64_t name) noexcept nogil:
    cdef size_t n = strlen(dir) + NAME_DIGITS + 4
    cdef char *path = <char *> malloc(n)
    if path != NULL:
        snprintf(path, n, b"%s/%017lld", dir, <long long> name)
    return path


cdef inline int64_t _size(int32_t slots, int32_t entries_max) noexcept nogil:
    return INDEX_HEADER_SIZE + <int64_t> INDEX_SLOT_SIZE * slots + <int64_t> INDEX_ENTRY_SIZE * entries_max


cdef inline unsigned char *_slot(const IndexFile *f, int32_t hash) noexcept nogil:
    return f.map + INDEX_HEADER_SIZE + <int64_t> INDEX_SLOT_SIZE * (<uint32_t> hash % <uint32_t> f.slots)


cdef void _destroy(IndexFile *f) noexcept nogil:
    guard_remove(&f.guard)
    if f.map != NULL:
        f.io.munmap(f.io.ctx, f.map, f.size)
    free(f.path)
    free(f)


cdef void _read_header(IndexFile *f) noexcept nogil:
    cdef int64_t last
    # IndexHeader.load: a count of zero (a file without a key) stands for 1.
    f.begin_timestamp = rmq_get64(f.map + INDEX_AT_BEGIN_TIMESTAMP)
    f.end_timestamp = rmq_get64(f.map + INDEX_AT_END_TIMESTAMP)
    f.begin_physical = rmq_get64(f.map + INDEX_AT_BEGIN_PHYSICAL)
    f.end_physical = rmq_get64(f.map + INDEX_AT_END_PHYSICAL)
    f.slot_count = rmq_get32(f.map + INDEX_AT_SLOT_COUNT)
    f.count = _bounded(f, index_word_load(f.map + INDEX_AT_COUNT))
    f.sealed = f.count >= f.entries_max
    if f.count > 1:
        # Records below the end are skipped as known: one damaged number must not keep all later ones out.
        last = entry_physical(f.entries + <int64_t> INDEX_ENTRY_SIZE * (f.count - 1))
        if last < f.end_physical:
            f.end_physical = last


cdef inline int32_t _bounded(const IndexFile *f, int32_t count) noexcept nogil:
    if count < 1:
        return 1
    return count if count < f.entries_max else f.entries_max


cdef int _attach(IndexFile *f, int fd) noexcept nogil:
    # Maps the open descriptor and reads the header.
    cdef int rc = f.io.mmap(f.io.ctx, fd, 0, f.size, f.writable, <void **> &f.map)
    if rc < 0:
        f.map = NULL
        return rc
    f.identity = rmq_identity_of(f.path, fd)
    f.entries = f.map + INDEX_HEADER_SIZE + <int64_t> INDEX_SLOT_SIZE * f.slots
    _read_header(f)
    return 0


cdef IndexFile *_new(const rmq_io *io, const char *dir, int64_t name, int32_t slots, int32_t entries_max,
                     bint writable) noexcept nogil:
    cdef IndexFile *f = <IndexFile *> calloc(1, sizeof(IndexFile))
    if f == NULL:
        return NULL
    f.io = io
    f.name = name
    f.slots = slots
    f.entries_max = entries_max
    f.size = _size(slots, entries_max)
    f.writable = writable
    f.refs = 1
    f.path = _path(dir, name)
    if f.path == NULL:
        free(f)
        return NULL
    return f


cdef void _heal(IndexFile *f) noexcept nogil:
    # A process killed between a slot and its count leaves a slot that leads to the next entry: it gets its former value back,
    # or the put of that entry would take itself for its predecessor and lose the chain.
    cdef int32_t e = f.count
    cdef int32_t hash
    cdef const unsigned char *entry
    cdef unsigned char *slot
    if e >= f.entries_max:
        return
    entry = f.entries + <int64_t> INDEX_ENTRY_SIZE * e
    hash = entry_hash(entry)
    if hash < 0:
        return
    slot = _slot(f, hash)
    if index_word_load(slot) == e:
        index_word_store(slot, _chained(entry, e))
        _announce(f, slot, INDEX_SLOT_SIZE)


cdef int index_file_open(const rmq_io *io, const char *dir, int64_t name, int32_t slots, int32_t entries_max, bint writable,
                         IndexFile **out) noexcept nogil:
    cdef int64_t size
    cdef int rc, fd
    cdef IndexFile *f = _new(io, dir, name, slots, entries_max, writable)
    if f == NULL:
        return -ENOMEM
    fd = rc = io.open(io.ctx, f.path, (O_RDWR if writable else O_RDONLY) | O_NOFOLLOW, 0)
    if rc >= 0:
        size = io.size(io.ctx, fd)
        if size < 0:
            rc = <int> size
        elif size != f.size:
            rc = -EINVAL
        else:
            rc = file_reserve(io, fd, size, False) if writable else 0     # before the first look at it
            if rc >= 0:
                rc = _attach(f, fd)
            if rc >= 0 and writable and not f.sealed:
                rc = file_reserve(io, fd, size, True)
        io.close(io.ctx, fd)        # the map needs none, nor do stores through it, nor their syncs
    if rc < 0:
        _destroy(f)
        return rc
    if writable:
        _heal(f)
        # A broker that stopped has not synced its newest file: the first sync here makes up for it.
        f.dirty = 1
    out[0] = f
    return 0


cdef int _prepare(IndexFile *f, const char *tmp, int64_t seed_physical, int64_t seed_timestamp) noexcept nogil:
    # A file of the right length, its space reserved, seeded, all of it on the device.
    cdef const rmq_io *io = f.io
    cdef unsigned char[INDEX_HEADER_SIZE] header
    cdef int rc, fd
    fd = io.open(io.ctx, tmp, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW, 0o644)
    if fd < 0:
        return fd
    rc = io.fallocate(io.ctx, fd, 0, f.size)
    if rc >= 0 and (seed_physical > 0 or seed_timestamp > 0):
        memset(header, 0, INDEX_HEADER_SIZE)
        if seed_physical > 0:
            rmq_put64(header + INDEX_AT_BEGIN_PHYSICAL, seed_physical)
            rmq_put64(header + INDEX_AT_END_PHYSICAL, seed_physical)
        if seed_timestamp > 0:
            rmq_put64(header + INDEX_AT_BEGIN_TIMESTAMP, seed_timestamp)
            rmq_put64(header + INDEX_AT_END_TIMESTAMP, seed_timestamp)
        rc = rmq_pwrite_all(io, fd, header, INDEX_HEADER_SIZE, 0)
    if rc >= 0:
        rc = io.fsync(io.ctx, fd)
    if rc >= 0:
        rc = _attach(f, fd)
    io.close(io.ctx, fd)
    return rc


cdef int index_file_create(const rmq_io *io, const char *dir, const char *tmp_dir, int64_t name, int32_t slots,
                           int32_t entries_max, int64_t seed_physical, int64_t seed_timestamp, IndexFile **out) noexcept nogil:
    cdef int rc
    cdef IndexFile *f = _new(io, dir, name, slots, entries_max, True)
    cdef char *tmp = _path(tmp_dir, name)
    if f == NULL or tmp == NULL:
        if f != NULL:
            _destroy(f)
        free(tmp)
        return -ENOMEM
    rc = _prepare(f, tmp, seed_physical, seed_timestamp)
    if rc >= 0:
        rc = io.rename(io.ctx, tmp, f.path)
        if rc >= 0:
            rc = io.sync_dir(io.ctx, dir)
            if rc < 0:
                io.unlink(io.ctx, f.path)
    if rc < 0:
        # The first error is the one to report; the leftover is overwritten by the next try.
        io.unlink(io.ctx, tmp)
        _destroy(f)
    else:
        out[0] = f
    free(tmp)
    return rc if rc < 0 else 0


cdef int index_file_guard(IndexFile *f) noexcept nogil:
    return guard_add(f.map, f.size, &f.identity, f.writable, &f.lost, &f.guard)


cdef void index_file_hold(IndexFile *f) noexcept nogil:
    rmq_add32(&f.refs, 1)


cdef void index_file_release(IndexFile *f) noexcept nogil:
    if rmq_add32(&f.refs, -1) == 0:
        _destroy(f)


# ---- put

cdef inline void _announce(IndexFile *f, const unsigned char *at, size_t n) noexcept nogil:
    if f.io.map_store != NULL:
        f.io.map_store(f.io.ctx, -1, at - f.map, at, n)


cdef inline int32_t _seconds(int64_t begin, int64_t store_timestamp) noexcept nogil:
    cdef int64_t diff
    if begin <= 0:
        return 0
    diff = <int64_t> (<uint64_t> store_timestamp - <uint64_t> begin) / 1000
    if diff < 0:
        return 0
    return <int32_t> diff if diff < INT32_MAX else INT32_MAX


cdef void index_file_prefetch(IndexFile *f, int32_t hash) noexcept nogil:
    rmq_prefetch(_slot(f, hash))


cdef bint index_file_put(IndexFile *f, int32_t hash, int64_t physical, int64_t store_timestamp) noexcept nogil:
    cdef int32_t e = f.count
    cdef unsigned char *slot
    cdef unsigned char *entry
    cdef int32_t prev
    cdef bint fresh
    if e >= f.entries_max:
        return False
    slot = _slot(f, hash)
    entry = f.entries + <int64_t> INDEX_ENTRY_SIZE * e
    prev = index_word_load(slot)
    # Without a branch: the slot is likely not in the cache, and nothing here has to wait for it.
    fresh = (<uint32_t> prev - <uint32_t> 1) >= (<uint32_t> e - <uint32_t> 1)
    prev = 0 if fresh else prev
    rmq_put32(entry + ENTRY_AT_KEY_HASH, hash)
    rmq_put64(entry + ENTRY_AT_PHYSICAL_OFFSET, physical)
    rmq_put32(entry + ENTRY_AT_TIME_DIFF, _seconds(f.begin_timestamp, store_timestamp))
    rmq_put32(entry + ENTRY_AT_PREVIOUS, prev)
    if e <= 1:
        f.begin_physical = physical
        rmq_publish(&f.begin_timestamp, store_timestamp)
        rmq_put64(f.map + INDEX_AT_BEGIN_PHYSICAL, physical)
        rmq_put64(f.map + INDEX_AT_BEGIN_TIMESTAMP, store_timestamp)
    f.slot_count = <int32_t> (<uint32_t> f.slot_count + <uint32_t> fresh)
    rmq_publish(&f.end_physical, physical)
    rmq_publish(&f.end_timestamp, store_timestamp)
    rmq_publish32(&f.count, e + 1)
    _announce(f, entry, INDEX_ENTRY_SIZE)
    index_word_store(slot, e)
    _announce(f, slot, INDEX_SLOT_SIZE)
    rmq_put64(f.map + INDEX_AT_END_PHYSICAL, physical)
    rmq_put64(f.map + INDEX_AT_END_TIMESTAMP, store_timestamp)
    rmq_put32(f.map + INDEX_AT_SLOT_COUNT, f.slot_count)
    index_word_store(f.map + INDEX_AT_COUNT, e + 1)
    _announce(f, f.map, INDEX_HEADER_SIZE)
    # Last, so that a sync that sees these marks syncs all of the stores above.
    rmq_publish32(&f.dirty, 1)
    if e + 1 >= f.entries_max:
        rmq_publish32(&f.sealed, 1)
    return True


cdef int index_file_sync(IndexFile *f) noexcept nogil:
    if rmq_swap32(&f.dirty, 0) == 0:
        return 0
    return f.io.msync(f.io.ctx, -1, f.map, f.size)


# ---- select

cdef void index_file_header(IndexFile *f, IndexHeader *out) noexcept nogil:
    if f.writable:
        out.count = rmq_load32(&f.count)
        out.begin_timestamp = rmq_load(&f.begin_timestamp)
        out.end_timestamp = rmq_load(&f.end_timestamp)
        out.end_physical = rmq_load(&f.end_physical)
    else:
        out.count = _bounded(f, index_word_load(f.map + INDEX_AT_COUNT))
        out.begin_timestamp = rmq_get64(f.map + INDEX_AT_BEGIN_TIMESTAMP)
        out.end_timestamp = rmq_get64(f.map + INDEX_AT_END_TIMESTAMP)
        out.end_physical = rmq_get64(f.map + INDEX_AT_END_PHYSICAL)


cdef int64_t index_file_select(IndexFile *f, int32_t hash, int64_t begin, int64_t end, int64_t *out, int64_t n,
                               int64_t max) noexcept nogil:
    cdef const unsigned char *entry
    cdef IndexHeader header
    cdef int64_t time
    cdef int32_t e, prev, diff, last
    e = index_word_load(_slot(f, hash))
    index_file_header(f, &header)
    last = header.count - 1
    if not f.writable and header.count < f.entries_max:
        # Another process may be between its slot and its count; the entry itself is written before either (RocketMQ's bound).
        last = header.count
    if e <= 0 or e > last or header.count <= 1:
        return n
    while n < max:
        entry = f.entries + <int64_t> INDEX_ENTRY_SIZE * e
        diff = rmq_get32(entry + ENTRY_AT_TIME_DIFF)
        if diff < 0:
            break
        time = <int64_t> (<uint64_t> header.begin_timestamp + <uint64_t> diff * 1000)
        if entry_hash(entry) == hash and begin <= time <= end:
            out[n] = entry_physical(entry)
            n += 1
        prev = entry_previous(entry)
        if prev <= 0 or prev >= e or time < begin:
            break
        e = prev
    return n


# ---- cut

cdef inline int32_t _chained(const unsigned char *entry, int32_t e) noexcept nogil:
    # The entry's predecessor, 0 if it says nothing usable.
    cdef int32_t prev = entry_previous(entry)
    return prev if 0 < prev < e else 0


cdef int _sync_now(IndexFile *f) noexcept nogil:
    return f.io.msync(f.io.ctx, -1, f.map, f.size)


cdef void _cut_header(IndexFile *f, int32_t kept, int32_t freed, StoreTime store_time, void *ctx) noexcept nogil:
    cdef const unsigned char *entry = f.entries + <int64_t> INDEX_ENTRY_SIZE * kept
    cdef int64_t time = -1
    f.end_physical = entry_physical(entry)
    if kept == 1:
        time = f.begin_timestamp
    elif store_time != NULL:
        time = store_time(ctx, f.end_physical)
    if time < 0:
        # The file alone knows it to the second; a query cannot tell the difference, its entries know no better.
        time = <int64_t> (<uint64_t> f.begin_timestamp + <uint64_t> rmq_get32(entry + ENTRY_AT_TIME_DIFF) * 1000)
    f.end_timestamp = time
    f.slot_count = <int32_t> (<uint32_t> f.slot_count - <uint32_t> freed)
    f.count = kept + 1
    f.sealed = 0
    rmq_put64(f.map + INDEX_AT_END_TIMESTAMP, f.end_timestamp)
    rmq_put64(f.map + INDEX_AT_END_PHYSICAL, f.end_physical)
    rmq_put32(f.map + INDEX_AT_SLOT_COUNT, f.slot_count)
    index_word_store(f.map + INDEX_AT_COUNT, f.count)
    _announce(f, f.map, INDEX_HEADER_SIZE)


cdef int64_t index_file_cut(IndexFile *f, int64_t physical, StoreTime store_time, void *ctx) noexcept nogil:
    cdef unsigned char *slot
    cdef unsigned char *entry
    cdef int32_t e, hash, prev, kept = f.count - 1, old = f.count - 1, freed = 0
    cdef int rc
    while kept > 0 and entry_physical(f.entries + <int64_t> INDEX_ENTRY_SIZE * kept) >= physical:
        kept -= 1
    if kept == 0 or kept == old:
        return kept
    for e in range(old, kept, -1):
        entry = f.entries + <int64_t> INDEX_ENTRY_SIZE * e
        hash = entry_hash(entry)
        prev = _chained(entry, e)
        freed += prev == 0
        if hash >= 0:
            slot = _slot(f, hash)
            # A slot that says something else was set by an earlier cut that a power failure broke off.
            if index_word_load(slot) == e:
                index_word_store(slot, prev)
                _announce(f, slot, INDEX_SLOT_SIZE)
    rc = _sync_now(f)
    if rc < 0:
        return rc
    _cut_header(f, kept, freed, store_time, ctx)
    rc = _sync_now(f)
    if rc < 0:
        return rc
    entry = f.entries + <int64_t> INDEX_ENTRY_SIZE * (kept + 1)
    memset(entry, 0, <size_t> INDEX_ENTRY_SIZE * (old - kept))
    _announce(f, entry, <size_t> INDEX_ENTRY_SIZE * (old - kept))
    rc = _sync_now(f)
    return rc if rc < 0 else kept
