"""The index of a store: a list of index files, the newest takes the keys (RocketMQ: IndexService.java). Contract in _index.pxd.

The dispatch thread puts, the checkpoint thread syncs, any thread queries. The list is guarded by a mutex that is held for a
few pointer moves only; a file is used outside of it under a hold, so nothing is unmapped under a reader. Making the next file
(space for 420 MB, a sync, a rename) happens before it enters the list and blocks nobody but dispatch.
"""
from libc.stdint cimport INT64_MAX, int32_t, int64_t
from libc.stdlib cimport calloc, free, qsort, realloc
from libc.string cimport memcmp, memcpy, memmove, strdup, strrchr

from rmq_store.base.io._io cimport rmq_io, rmq_lost_any
from rmq_store.base.io._sync cimport (EEXIST, EIO, ENOMEM, EROFS, rmq_load32, rmq_mutex, rmq_mutex_lock, rmq_mutex_unlock,
                                      rmq_publish32)
from rmq_store.codec._text cimport Keys, key_hash, key_next, keys_of, topic_hash
from rmq_store.queues.index._file cimport (IndexFile, IndexHeader, StoreTime, index_file_create, index_file_cut,
                                           index_file_guard, index_file_header, index_file_hold, index_file_name_at,
                                           index_file_open, index_file_prefetch, index_file_put, index_file_release,
                                           index_file_select, index_file_sync)

cdef enum:
    TOPIC_CACHE_SIZE = 256          # longer topics are hashed anew each time
    QUERY_ROUNDS = 3
    MODE_DIR = 0o755

cdef struct Index:
    const rmq_io *io
    char *dir
    char *tmp_dir
    int32_t slots
    int32_t entries_max
    bint readonly
    bint guarded
    int error                       # first failed sync, positive
    # Guarded by `lock`; ascending by name. Only the dispatch thread, or recovery before it starts, changes it.
    rmq_mutex lock
    IndexFile **files
    int64_t count
    int64_t capacity
    # The dispatch thread's.
    IndexFile *last                 # the newest file, held by the list
    int64_t failed_physical         # record whose put failed half-way, -1 none ...
    int32_t failed_keys             # ... and how many of its keys are in
    int32_t topic_size              # of the topic hashed last, -1 none
    int32_t topic_hash              # of "topic#"
    char[TOPIC_CACHE_SIZE] topic


# ---- the list

cdef Index *index_new(const rmq_io *io, const char *dir, const char *tmp_dir, int32_t slots, int32_t entries_max,
                      bint readonly) noexcept nogil:
    cdef Index *x = <Index *> calloc(1, sizeof(Index))
    if x == NULL:
        return NULL
    x.io = io
    x.dir = strdup(dir)
    x.tmp_dir = strdup(tmp_dir)
    x.slots = slots
    x.entries_max = entries_max
    x.readonly = readonly
    x.failed_physical = -1
    x.topic_size = -1
    if x.dir == NULL or x.tmp_dir == NULL:
        index_free(x)
        return NULL
    return x


cdef void index_free(Index *x) noexcept nogil:
    cdef int64_t i
    if x == NULL:
        return
    for i in range(x.count):
        index_file_release(x.files[i])
    free(x.files)
    free(x.dir)
    free(x.tmp_dir)
    free(x)


cdef int index_guard(Index *x) noexcept nogil:
    cdef int64_t i
    cdef int rc = 0
    rmq_mutex_lock(&x.lock)
    x.guarded = True
    for i in range(x.count):
        if rc == 0:
            rc = index_file_guard(x.files[i])
    rmq_mutex_unlock(&x.lock)
    return rc


cdef int _reserve(Index *x) noexcept nogil:
    # Room for one more file in the list.
    cdef int64_t capacity = 2 * x.capacity if x.capacity > 0 else 16
    cdef IndexFile **files
    cdef int rc = 0
    if x.count < x.capacity:
        return 0
    rmq_mutex_lock(&x.lock)
    files = <IndexFile **> realloc(x.files, capacity * sizeof(IndexFile *))
    if files == NULL:
        rc = -ENOMEM
    else:
        x.files = files
        x.capacity = capacity
    rmq_mutex_unlock(&x.lock)
    return rc


cdef void _push(Index *x, IndexFile *f) noexcept nogil:
    rmq_mutex_lock(&x.lock)
    x.files[x.count] = f
    x.count += 1
    rmq_mutex_unlock(&x.lock)
    x.last = f


cdef int _remove(Index *x, int64_t i) noexcept nogil:
    # Deletes the file; who holds it still sees its map.
    cdef IndexFile *f = x.files[i]
    cdef int rc = 0 if x.readonly else x.io.unlink(x.io.ctx, f.path)
    if rc < 0:
        return rc
    rmq_mutex_lock(&x.lock)
    x.count -= 1
    memmove(&x.files[i], &x.files[i + 1], (x.count - i) * sizeof(IndexFile *))
    rmq_mutex_unlock(&x.lock)
    x.last = x.files[x.count - 1] if x.count > 0 else NULL
    index_file_release(f)
    return 0


cdef IndexFile *_hold_before(Index *x, int64_t name) noexcept nogil:
    # The newest file with a smaller name, held for the caller; NULL: none.
    cdef IndexFile *f = NULL
    cdef int64_t i
    rmq_mutex_lock(&x.lock)
    for i in range(x.count - 1, -1, -1):
        if x.files[i].name < name:
            f = x.files[i]
            index_file_hold(f)
            break
    rmq_mutex_unlock(&x.lock)
    return f


cdef IndexFile *_hold_after(Index *x, int64_t name) noexcept nogil:
    # The oldest file with a greater name, held for the caller; NULL: none.
    cdef IndexFile *f = NULL
    cdef int64_t i
    rmq_mutex_lock(&x.lock)
    for i in range(x.count):
        if x.files[i].name > name:
            f = x.files[i]
            index_file_hold(f)
            break
    rmq_mutex_unlock(&x.lock)
    return f


cdef int64_t index_file_count(Index *x) noexcept nogil:
    cdef int64_t n
    rmq_mutex_lock(&x.lock)
    n = x.count
    rmq_mutex_unlock(&x.lock)
    return n


cdef int64_t index_file_name(Index *x, int64_t i) noexcept nogil:
    return x.files[i].name


cdef int index_let_go(Index *x, int64_t i) noexcept nogil:
    return _remove(x, i) if x.readonly else -EROFS


# ---- load and recovery

cdef int index_add_file(Index *x, int64_t name) noexcept nogil:
    cdef IndexFile *f = NULL
    cdef int rc
    if x.last != NULL and name <= x.last.name:
        return -EEXIST
    rc = _reserve(x)
    if rc == 0:
        rc = index_file_open(x.io, x.dir, name, x.slots, x.entries_max, not x.readonly, &f)
    if rc == 0:
        _push(x, f)
    return rc


cdef int _sync_dir(Index *x, int64_t removed) noexcept nogil:
    return x.io.sync_dir(x.io.ctx, x.dir) if removed > 0 and not x.readonly else 0


cdef int index_drop_after(Index *x, int64_t index_timestamp) noexcept nogil:
    cdef IndexHeader header
    cdef int64_t i, removed = 0
    cdef int rc
    for i in range(x.count - 1, -1, -1):
        index_file_header(x.files[i], &header)
        if header.end_timestamp > index_timestamp:
            rc = _remove(x, i)
            if rc < 0:
                return rc
            removed += 1
    rc = _sync_dir(x, removed)
    return rc if rc < 0 else <int> removed


cdef int index_truncate(Index *x, int64_t physical, StoreTime store_time=NULL, void *ctx=NULL) noexcept nogil:
    cdef IndexFile *f
    cdef int64_t i, kept = 0
    cdef int rc = 0
    if x.readonly:
        return 0
    x.failed_physical = -1
    # Newest first, each step on the device before the next: a cut that is broken off leaves a shorter list without a hole.
    for i in range(x.count - 1, -1, -1):
        f = x.files[i]
        kept = index_file_cut(f, physical, store_time, ctx)
        if kept != 0:
            break
        if f.end_physical >= physical or f.count > 1:
            rc = _remove(x, i)
            if rc == 0:
                rc = _sync_dir(x, 1)
            if rc < 0:
                break
    if kept < 0:
        rc = <int> kept
    if rc < 0 and x.error == 0:
        rmq_publish32(&x.error, -rc)
    return rc


cdef int index_destroy(Index *x) noexcept nogil:
    cdef int64_t removed = x.count
    cdef int rc
    if x.readonly:
        return -EROFS
    while x.count > 0:
        rc = _remove(x, x.count - 1)
        if rc < 0:
            return rc
    x.failed_physical = -1
    return _sync_dir(x, removed)


cdef int index_drop_before(Index *x, int64_t physical_min) noexcept nogil:
    # The dispatch thread may push a file meanwhile; `last` is its own and never the one that goes.
    cdef IndexFile *f
    cdef IndexHeader header
    cdef int dropped = 0
    cdef int rc = 0
    while rc >= 0:
        rmq_mutex_lock(&x.lock)
        f = x.files[0] if x.count > 1 else NULL
        rmq_mutex_unlock(&x.lock)
        if f == NULL:
            break
        index_file_header(f, &header)
        if header.end_physical >= physical_min:
            break
        rc = 0 if x.readonly else x.io.unlink(x.io.ctx, f.path)
        if rc < 0:
            break
        rmq_mutex_lock(&x.lock)
        x.count -= 1
        memmove(&x.files[0], &x.files[1], x.count * sizeof(IndexFile *))
        rmq_mutex_unlock(&x.lock)
        index_file_release(f)
        dropped += 1
        rc = _sync_dir(x, 1)
    return rc if rc < 0 else dropped


cdef int64_t index_end_physical(Index *x) noexcept nogil:
    cdef IndexFile *f = _hold_before(x, INT64_MAX)
    cdef IndexHeader header
    if f == NULL:
        return -1
    index_file_header(f, &header)
    index_file_release(f)
    return header.end_physical if header.end_physical > 0 or header.count > 1 else -1


# ---- dispatch

cdef inline int32_t _cached_topic_hash(Index *x, const char *topic, int32_t size) noexcept nogil:
    if size == x.topic_size and memcmp(topic, x.topic, size) == 0:
        return x.topic_hash
    x.topic_size = -1
    x.topic_hash = topic_hash(topic, size)
    if size <= TOPIC_CACHE_SIZE:
        memcpy(x.topic, topic, size)
        x.topic_size = size
    return x.topic_hash


cdef int _make_dir(Index *x) noexcept nogil:
    cdef char *parent
    cdef char *slash
    cdef int rc = x.io.mkdir(x.io.ctx, x.dir, MODE_DIR)
    if rc == -EEXIST:
        return 0
    if rc < 0:
        return rc
    parent = strdup(x.dir)
    if parent == NULL:
        return -ENOMEM
    slash = strrchr(parent, 47)
    if slash != NULL:
        slash[1 if slash == parent else 0] = 0
    rc = x.io.sync_dir(x.io.ctx, parent if slash != NULL else <char *> b".")
    if rc < 0:
        # Else the next try would find a directory and not ask whether the device has it.
        x.io.rmdir(x.io.ctx, x.dir)
    free(parent)
    return rc


cdef int _roll(Index *x) noexcept nogil:
    # The next file; its header starts where the full one ends.
    cdef int64_t name = index_file_name_at(x.io.wall_ms(x.io.ctx))
    cdef int64_t physical = 0, timestamp = 0
    cdef IndexFile *f = NULL
    cdef int rc = _make_dir(x)
    if rc == 0:
        rc = _reserve(x)
    if rc < 0:
        return rc
    if x.last != NULL:
        physical = x.last.end_physical
        timestamp = x.last.end_timestamp
        if name <= x.last.name:
            # Two files in one millisecond, or a clock that went back (also an hour at the end of summer time): names must rise.
            name = x.last.name + 1
    rc = index_file_create(x.io, x.dir, x.tmp_dir, name, x.slots, x.entries_max, physical, timestamp, &f)
    if rc == 0 and x.guarded:
        rc = index_file_guard(f)
        if rc < 0:
            x.io.unlink(x.io.ctx, f.path)       # it would be no part of the list, and there after the next open
            index_file_release(f)
    if rc == 0:
        _push(x, f)
    return rc


cdef inline int _put_hash(Index *x, int32_t hash, int64_t physical, int64_t store_timestamp) noexcept nogil:
    cdef int rc
    while x.last == NULL or not index_file_put(x.last, hash, physical, store_timestamp):
        rc = _roll(x)
        if rc < 0:
            return rc
    return 0


cdef inline int32_t _ask(Index *x, int32_t hash) noexcept nogil:
    if x.last != NULL:
        index_file_prefetch(x.last, hash)
    return hash


cdef int index_put(Index *x, const char *topic, int32_t topic_size, const char *uniq_key, int32_t uniq_key_size,
                   const char *keys, int32_t keys_size, int64_t physical, int64_t store_timestamp) noexcept nogil:
    # A key is put one step late: the memory of its slot is on its way while the next key is hashed.
    cdef Keys all_keys = keys_of(uniq_key, uniq_key_size, keys, keys_size)
    cdef int32_t prefix, hash, waiting = -1, done = 0, skip = 0
    cdef int rc = 0
    if x.readonly:
        return -EROFS
    if x.last != NULL and physical < x.last.end_physical:
        return 0
    if physical == x.failed_physical:
        skip = x.failed_keys
    prefix = _cached_topic_hash(x, topic, topic_size)
    while True:
        hash = _ask(x, key_hash(prefix, all_keys.key, all_keys.size)) if key_next(&all_keys) else -1
        if waiting >= 0:
            if done >= skip:
                rc = _put_hash(x, waiting, physical, store_timestamp)
                if rc < 0:
                    break
            done += 1
        if hash < 0:
            break
        waiting = hash
    if rc == 0 and x.last != NULL and rmq_lost_any(&x.last.lost):
        rc = -EIO
    # What a failed roll (a full disk) left undone is done when the record comes again, and only that.
    x.failed_physical = physical if rc < 0 else -1
    x.failed_keys = done
    return rc


cdef int index_sync(Index *x, bint all, int64_t *end_timestamp) noexcept nogil:
    cdef IndexFile *f
    cdef IndexHeader header
    cdef int64_t name = -1
    cdef int full
    cdef int rc = -rmq_load32(&x.error)
    end_timestamp[0] = 0
    if x.readonly:
        return 0
    while rc == 0:
        f = _hold_after(x, name)
        if f == NULL:
            break
        name = f.name
        full = rmq_load32(&f.sealed)        # before the sync: then it covers the last store
        if all or full:
            rc = index_file_sync(f)
        if rc < 0:
            rmq_publish32(&x.error, -rc)
        elif full:
            index_file_header(f, &header)
            end_timestamp[0] = header.end_timestamp
        index_file_release(f)
    return rc


# ---- reading

cdef inline bint _time_matched(const IndexHeader *h, int64_t begin, int64_t end) noexcept nogil:
    # IndexFile.isTimeMatched
    return ((begin < h.begin_timestamp and end > h.end_timestamp) or h.begin_timestamp <= begin <= h.end_timestamp
            or h.begin_timestamp <= end <= h.end_timestamp)


cdef int64_t _query(Index *x, int32_t hash, int64_t begin, int64_t end, int64_t *out, int64_t max, int64_t *last_timestamp,
                    int64_t *last_physical) noexcept nogil:
    cdef IndexFile *f
    cdef IndexHeader header
    cdef int64_t n = 0
    cdef int64_t name = INT64_MAX
    last_timestamp[0] = last_physical[0] = 0
    while n < max:
        f = _hold_before(x, name)
        if f == NULL:
            break
        index_file_header(f, &header)
        if name == INT64_MAX:
            last_timestamp[0] = header.end_timestamp
            last_physical[0] = header.end_physical
        name = f.name
        if _time_matched(&header, begin, end):
            n = index_file_select(f, hash, begin, end, out, n, max)
        if rmq_lost_any(&f.lost):
            n = -EIO
        index_file_release(f)
        if n < 0 or header.begin_timestamp < begin:
            break
    return n


cdef int64_t index_query(Index *x, const char *topic, int32_t topic_size, const char *key, int32_t key_size, int64_t begin,
                         int64_t end, int64_t *out, int64_t max, int64_t *last_timestamp,
                         int64_t *last_physical) noexcept nogil:
    return _query(x, key_hash(topic_hash(topic, topic_size), key, key_size), begin, end, out, max, last_timestamp,
                  last_physical)


cdef int _ascending(const void *a, const void *b) noexcept nogil:
    cdef int64_t left = (<const int64_t *> a)[0]
    cdef int64_t right = (<const int64_t *> b)[0]
    return (left > right) - (left < right)


cdef int64_t index_query_message(Index *x, const char *topic, int32_t topic_size, const char *key, int32_t key_size,
                                 int64_t begin, int64_t end, int64_t *out, int64_t max, StoreTime store_time, void *ctx,
                                 int64_t *last_timestamp, int64_t *last_physical) noexcept nogil:
    cdef int32_t hash = key_hash(topic_hash(topic, topic_size), key, key_size)
    cdef int64_t found, i, time, timestamp, physical
    cdef int64_t n = 0
    cdef int _turn
    last_timestamp[0] = last_physical[0] = 0
    for _turn in range(QUERY_ROUNDS):
        found = _query(x, hash, begin, end, out, max, &timestamp, &physical)
        if found < 0:
            return found
        if found == 0:
            break
        last_timestamp[0] = timestamp
        last_physical[0] = physical
        qsort(out, found, sizeof(int64_t), _ascending)
        for i in range(found):
            time = store_time(ctx, out[i])
            if time < -1:
                return time
            if time < 0:
                continue
            if i == 0:
                end = time
            out[n] = out[i]
            n += 1
        if n > 0 or end < begin:
            break
    return n
