"""The Python face of an index, for opening a store, for tools and for tests. Holds memory, converts errors, decides nothing."""
import errno
import os

cimport cython
from libc.stdint cimport int32_t, int64_t

from rmq_store.base.io._io cimport IoTable
from rmq_store.base.io._sync cimport EINVAL
from rmq_store.base.io._want cimport rmq_is_full
from rmq_store.codec._layout cimport INDEX_ENTRY_SIZE, INDEX_HEADER_SIZE, INDEX_SLOT_SIZE
from rmq_store.queues.index._file cimport StoreTime
from rmq_store.queues.index._index cimport (Index, index_add_file, index_destroy, index_drop_after, index_end_physical,
                                            index_file_count, index_free, index_new, index_put, index_query,
                                            index_query_message, index_sync, index_truncate)

from rmq_store import errors
from rmq_store.base.io.files import no_room

cdef enum:
    QUERY_MAX = 64                  # maxMsgsNumBatch


cdef struct Times:                  # ascending offsets of records and their store timestamps
    const int64_t *offsets
    const int64_t *times
    int64_t count


cdef int64_t _time_of(void *ctx, int64_t physical) noexcept nogil:
    cdef Times *t = <Times *> ctx
    cdef int64_t low = 0, high = t.count, middle
    while low < high:
        middle = (low + high) // 2
        if t.offsets[middle] < physical:
            low = middle + 1
        else:
            high = middle
    return t.times[low] if low < t.count and t.offsets[low] == physical else -1


cdef int _times(Times *t, const int64_t[::1] offsets, const int64_t[::1] times) except -1:
    if offsets.shape[0] != times.shape[0]:
        raise ValueError(f"{offsets.shape[0]} offsets and {times.shape[0]} times: give as many of one as of the other")
    t.count = offsets.shape[0]
    t.offsets = &offsets[0] if t.count > 0 else NULL
    t.times = &times[0] if t.count > 0 else NULL
    return 0


cdef object _ask(Index *x, bytes topic, bytes key, int64_t max, int64_t begin, int64_t end, Times *times):
    cdef int64_t[QUERY_MAX] out
    cdef int64_t n, last_timestamp = 0, last_physical = 0
    cdef const char *t = topic
    cdef const char *k = key
    cdef int32_t t_size = <int32_t> len(topic), k_size = <int32_t> len(key)
    max = max if max < QUERY_MAX else QUERY_MAX
    with nogil:
        if times == NULL:
            n = index_query(x, t, t_size, k, k_size, begin, end, out, max, &last_timestamp, &last_physical)
        else:
            n = index_query_message(x, t, t_size, k, k_size, begin, end, out, max, _time_of, times, &last_timestamp,
                                    &last_physical)
    return [out[i] for i in range(n)], last_timestamp, last_physical


# no_gc_clear: the table must outlive the index that is unmapped through it, also when the collector frees both.
@cython.final
@cython.no_gc_clear
cdef class IndexOwner:
    """The index files of one directory.

    `dir`: where the files are (made when the first one is); `tmp_dir`: an existing directory of the same file system, where a
    file is kept until it is whole. Loading is loader.load(). Errors: DurabilityError with the kernel's errno.

    Thread-safety: query, query_message and sync from any thread; the others from one thread at a time, and drop_after, truncate
    and destroy only while nobody else uses the object. Durability: what sync() returned for. Source: IndexService.java.
    """

    def __cinit__(self, str dir not None, str tmp_dir not None, int32_t slots, int32_t entries_max, bint readonly=False,
                  IoTable io=None):
        if slots < 1 or entries_max < 2:
            raise errors.ConfigError(f"{slots} slots and {entries_max} entries make no index file: at least 1 and 2 are needed")
        self.io = io if io is not None else IoTable()
        self.dir = dir
        self.file_size = INDEX_HEADER_SIZE + <int64_t> INDEX_SLOT_SIZE * slots + <int64_t> INDEX_ENTRY_SIZE * entries_max
        self.index = index_new(self.io.table, os.fsencode(dir), os.fsencode(tmp_dir), slots, entries_max, readonly)
        if self.index == NULL:
            raise MemoryError("no memory for the list of index files")

    def __dealloc__(self):
        index_free(self.index)

    cdef object _failed(self, int rc, str what):
        if rmq_is_full(rc):
            return errors.DiskFull(-rc, what, self.dir)
        return errors.DurabilityError(-rc, what, self.dir)

    @property
    def file_count(self):
        """Files in the list: int."""
        return index_file_count(self.index)

    @property
    def end_physical(self):
        """Offset of the newest record that has a key here: int, -1 none."""
        return index_end_physical(self.index)

    def add_file(self, int64_t name):
        """Takes in one existing file; names ascending. CorruptionError: its size is not that of the geometry."""
        cdef int rc
        with nogil:
            rc = index_add_file(self.index, name)
        if rc == -EINVAL:
            path = os.path.join(self.dir, f"{name:017d}")
            raise errors.foreign(path, f"{self.file_size} bytes, as index_slots and index_entries_max say",
                                 f"{os.stat(path).st_size} bytes")
        if -rc in (errno.EACCES, errno.EPERM, errno.ENOENT):     # nothing is wrong with the device
            raise OSError(-rc, os.strerror(-rc), os.path.join(self.dir, f"{name:017d}"))
        if rmq_is_full(rc):
            path = os.path.join(self.dir, f"{name:017d}")
            raise no_room(-rc, path)
        if rc < 0:
            raise self._failed(rc, f"opening index file {name:017d}")

    def put(self, bytes topic not None, bytes uniq_key, bytes keys, int64_t physical, int64_t store_timestamp):
        """Indexes one record (IndexService.buildIndex): its UNIQ_KEY, then each word of its KEYS; None: it has none."""
        cdef const char *u = <const char *> uniq_key if uniq_key is not None else NULL
        cdef const char *k = <const char *> keys if keys is not None else NULL
        cdef const char *t = topic
        cdef int32_t t_size = <int32_t> len(topic)
        cdef int32_t u_size = <int32_t> len(uniq_key) if uniq_key is not None else 0
        cdef int32_t k_size = <int32_t> len(keys) if keys is not None else 0
        cdef int rc
        with nogil:
            rc = index_put(self.index, t, t_size, u, u_size, k, k_size, physical, store_timestamp)
        if rc < 0:
            raise self._failed(rc, "putting into the index")

    def sync(self, bint all=True):
        """Syncs changed files, with all=False only full ones. Returns the end time of the newest full file, ms, 0 none."""
        cdef int64_t end = 0
        cdef int rc
        with nogil:
            rc = index_sync(self.index, all, &end)
        if rc < 0:
            raise errors.SyncFailed(-rc, "syncing the index", self.dir)
        return end

    def drop_after(self, int64_t index_timestamp):
        """After an unclean stop: deletes files that end later than the checkpoint says. Returns how many."""
        cdef int rc
        with nogil:
            rc = index_drop_after(self.index, index_timestamp)
        if rc < 0:
            raise self._failed(rc, "deleting index files")
        return rc

    def truncate(self, int64_t physical, const int64_t[::1] offsets=None, const int64_t[::1] times=None):
        """Removes what leads at or beyond `physical`. `offsets` (ascending) and `times` tell the records' store timestamps."""
        cdef Times t
        cdef StoreTime store_time = NULL
        cdef int rc
        if offsets is not None and times is not None:
            _times(&t, offsets, times)
            store_time = _time_of
        with nogil:
            rc = index_truncate(self.index, physical, store_time, &t)
        if rc < 0:
            raise self._failed(rc, "cutting the index")

    def destroy(self):
        """Deletes all files."""
        cdef int rc
        with nogil:
            rc = index_destroy(self.index)
        if rc < 0:
            raise self._failed(rc, "deleting index files")

    def query(self, bytes topic not None, bytes key not None, int64_t max, int64_t begin, int64_t end):
        """IndexService.queryOffset: (offsets, end time and end offset of the newest file), at most QUERY_MAX offsets."""
        return _ask(self.index, topic, key, max, begin, end, NULL)

    def query_message(self, bytes topic not None, bytes key not None, int64_t max, int64_t begin, int64_t end,
                      const int64_t[::1] offsets not None, const int64_t[::1] times not None):
        """DefaultMessageStore.queryMessage, on a log whose records lie at `offsets` (ascending), stored at `times`."""
        cdef Times t
        _times(&t, offsets, times)
        return _ask(self.index, topic, key, max, begin, end, &t)
