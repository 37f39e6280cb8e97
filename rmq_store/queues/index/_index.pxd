# The Index files of a store: key -> physical offsets, 40-byte header, hash slots, 20-byte entries (RocketMQ: IndexFile).
from libc.stdint cimport int32_t, int64_t

from rmq_store.base.io._io cimport rmq_io
from rmq_store.queues.index._file cimport StoreTime

cdef struct Index                   # private to _index.pyx

# ---- life. `dir` is made when the first file is. Files are made in tmp_dir (<root>/.alloc), reserved with fallocate, synced
# and renamed to the wall clock's local time (17 digits, unique).
cdef Index *index_new(const rmq_io *io, const char *dir, const char *tmp_dir, int32_t slots, int32_t entries_max,
                      bint readonly) noexcept nogil
# Guards every map, those of files to come too (rmq_guard.h): 0 or -errno. Puts and queries that meet what is gone: -EIO.
cdef int index_guard(Index *x) noexcept nogil
cdef void index_free(Index *x) noexcept nogil               # unmaps; writes and syncs nothing
# Maps one existing file (ascending by name). -EINVAL: wrong size (the name is reported by the caller).
cdef int index_add_file(Index *x, int64_t name) noexcept nogil
# After an unclean stop: deletes files whose end time is later than the checkpoint's index time (IndexService.load). Returns how
# many, or -errno. Readonly: they are only no longer looked at.
cdef int index_drop_after(Index *x, int64_t index_timestamp) noexcept nogil
# Removes what leads at or beyond `physical` (a truncated log) so that the rest equals an index built from the cut log. While
# nobody puts or queries. store_time gives the exact end time of what is left; without it, it is exact to the second. Readonly:
# nothing (readers refuse offsets beyond the log).
cdef int index_truncate(Index *x, int64_t physical, StoreTime store_time=*, void *ctx=*) noexcept nogil
# Cleaning, by one thread beside dispatch, sync and queries: deletes leading files whose records all lie below `physical_min`,
# never the newest (IndexService.deleteExpiredFile). Returns how many, or -errno. Readonly: they are only no longer looked at.
cdef int index_drop_before(Index *x, int64_t physical_min) noexcept nogil
cdef int index_destroy(Index *x) noexcept nogil             # deletes all files
# Offset of the newest record that the files cover, -1 none: dispatch that repeats from there misses no key.
cdef int64_t index_end_physical(Index *x) noexcept nogil

# ---- dispatch: one thread. UNIQ_KEY first, then each non-empty blank-separated token of KEYS (NULL: none). Skips what the last
# file already has (offset < its endPhyOffset). 0 or -errno; a full file rolls to a new one. After an error the same record may
# be put again: keys it already has are not repeated.
cdef int index_put(Index *x, const char *topic, int32_t topic_size, const char *uniq_key, int32_t uniq_key_size,
                   const char *keys, int32_t keys_size, int64_t physical, int64_t store_timestamp) noexcept nogil
# Syncs every file changed since the last sync (all: also the newest, else only full ones). Another thread than dispatch's.
# Sets *end_timestamp to the end time of the newest full file that is synced (0 none): the checkpoint's indexMsgTimestamp. The
# first error is remembered: every later call returns it.
cdef int index_sync(Index *x, bint all, int64_t *end_timestamp) noexcept nogil

# ---- reading: any thread. Newest file first; writes up to max physical offsets whose key hash is equal and whose time (in
# whole seconds from the file's begin) lies in [begin, end]. Returns the count. last_timestamp, last_physical: of the newest
# file.
cdef int64_t index_query(Index *x, const char *topic, int32_t topic_size, const char *key, int32_t key_size, int64_t begin,
                         int64_t end, int64_t *out, int64_t max, int64_t *last_timestamp,
                         int64_t *last_physical) noexcept nogil
# DefaultMessageStore.queryMessage: up to three queries, each ending where the oldest hit of the one before lies, until one
# hits records. Writes their offsets, ascending, without those for which store_time knows no record. last_*: 0 if
# no entry was found.
cdef int64_t index_query_message(Index *x, const char *topic, int32_t topic_size, const char *key, int32_t key_size,
                                 int64_t begin, int64_t end, int64_t *out, int64_t max, StoreTime store_time, void *ctx,
                                 int64_t *last_timestamp, int64_t *last_physical) noexcept nogil
cdef int64_t index_file_count(Index *x) noexcept nogil
# Readonly, beside queries, by the thread that adds files: the i-th file's name, and no longer looking at that file. 0, -errno.
cdef int64_t index_file_name(Index *x, int64_t i) noexcept nogil
cdef int index_let_go(Index *x, int64_t i) noexcept nogil
