# One queue of one topic: where the next message goes (append side), what is already dispatched into the ConsumeQueue files
# (dispatch side), and what a reader may see (published). And the table of all queues of a store.
#
# ConsumeQueue files are sparse, written by pwrite and read by pread through a bounded table of descriptors, never mapped:
# 10,000 queues cost neither 60 GB nor 10,000 descriptors.
from libc.stdint cimport int32_t, int64_t

from rmq_store.base.io._io cimport rmq_io
from rmq_store.base.segment._allocator cimport Allocator
from rmq_store.queues.consumequeue._ext cimport ExtWindow
from rmq_store.queues.consumequeue._structs cimport Queue, QueueTable

# ---- life. Paths are copied. `tmp_dir` is <root>/.alloc: files are made there, sized, synced and renamed into place.
# ext_file_size 0: no ConsumeQueueExt. Returns NULL when out of memory.
cdef QueueTable *queues_new(const rmq_io *io, const char *dir, const char *ext_dir, const char *tmp_dir, int64_t file_size,
                            int64_t ext_file_size, int fd_max, bint readonly) noexcept nogil
cdef void queues_free(QueueTable *t) noexcept nogil         # closes descriptors, writes nothing
cdef void queues_make_ahead(QueueTable *t, Allocator *a) noexcept nogil     # before it starts: its thread makes queue files too

# ---- look-up: any thread. With create, an unknown queue is added in memory (no file until its first entry). NULL: not there.
cdef Queue *queues_find(QueueTable *t, const char *topic, int32_t topic_size, int32_t queue_id, bint create) noexcept nogil
cdef int64_t queues_count(QueueTable *t) noexcept nogil
cdef Queue *queues_at(QueueTable *t, int64_t i) noexcept nogil   # in order of creation; stable
# The queues of one topic, newest first, without a look at any other: the first one, and the one behind `q`; NULL: no more.
cdef Queue *queues_of_topic(QueueTable *t, const char *topic, int32_t topic_size) noexcept nogil
cdef Queue *queue_same_topic(const Queue *q) noexcept nogil

# ---- load: tells the table of one existing file (found by listing the directories, in ascending order of start). Returns 0 or
# -errno; -EINVAL where it does not continue the files before it.
cdef int queue_add_file(QueueTable *t, Queue *q, int64_t start) noexcept nogil
cdef int queue_add_ext_file(QueueTable *t, Queue *q, int64_t start) noexcept nogil
# Where the log begins: a queue all of whose entries lead below it may begin anew at its next record.
cdef void queues_log_begins(QueueTable *t, int64_t offset) noexcept nogil
# While the store opens, before and behind dispatch from `from_offset` to `end`. `back`: entries that would leave a gap in their
# queue are left out; queues_filled says in lacking_from from where on, log offset, queues lack entries, INT64_MAX: none does.
# Else each record gets a place that the records around it confirm: a queue offset that is too high may be rotten, as may be the
# records that would be between. 0 or -errno.
cdef void queues_fill(QueueTable *t, bint back, int64_t from_offset, int64_t end) noexcept nogil
cdef int queues_filled(QueueTable *t, int64_t *lacking_from) noexcept nogil
# Finds the end of a queue, and changes nothing on the disk: sets max_offset, next_offset, max_physical_offset, min_offset (of
# the first file). safe: -1 after a stop in order, by bisection; after a crash the log offset below which every entry is known
# to be on the device: unit by unit from the file on where those end; 2^63 - 1: whatever seems to be an entry is taken for one.
# 0; 1: entries stand behind that end which cannot have been left there; -errno.
cdef int queue_find_end(QueueTable *t, Queue *q, int64_t safe) noexcept nogil
# Queue offset of the first entry of its first file; 0 where it has no file.
cdef int64_t queue_first(const Queue *q) noexcept nogil
# Another process continues writing them: what is not there may come back. Before reading begins beside it.
cdef void queues_follow(QueueTable *t) noexcept nogil
# Makes `index` the end, below what was found; 0: the queue begins anew, whatever its files are called.
cdef int queue_back_to(QueueTable *t, Queue *q, int64_t index) noexcept nogil
# Zeroes, and deletes, what stands behind the end that was found. Readonly: -EROFS.
cdef int queue_cut(QueueTable *t, Queue *q) noexcept nogil
# Removes entries of records at or beyond `physical` (truncateDirtyLogicFiles): zeroes them, syncs, then deletes later files.
# In a readonly table only the published positions move.
cdef int queue_truncate(QueueTable *t, Queue *q, int64_t physical) noexcept nogil
# correctMinOffset: min_offset becomes the first entry whose record is at or beyond `physical_min`.
cdef int queue_correct_min(QueueTable *t, Queue *q, int64_t physical_min) noexcept nogil
# Cleaning, by one thread beside dispatch, sync and readers: queue_correct_min, then deletes leading files whose entries all
# lead below `physical_min`; never the last file, and none that is not synced yet. Oldest first, the directory synced after
# each. Returns how many, or -errno.
cdef int queue_drop_before(QueueTable *t, Queue *q, int64_t physical_min) noexcept nogil
cdef int queue_destroy(QueueTable *t, Queue *q) noexcept nogil   # deletes its files; the queue is empty at offset 0
# The two halves of it, for an open store: the memory, under the put lock and while nothing is dispatched or synced (-ENOMEM:
# nothing is done); then the files, while nothing is synced. What fails can be called again, unless a sync failed
# (queues_sync_failed); dispatch does, too, before the queue gets its next entry. 0 or -errno.
cdef int queue_empty(QueueTable *t, Queue *q) noexcept nogil
cdef int queue_delete_files(QueueTable *t, Queue *q) noexcept nogil
cdef bint queue_deleting(Queue *q) noexcept nogil           # whether it was removed, and its files are not gone yet
cdef bint queues_deleting(QueueTable *t) noexcept nogil     # whether there is such a queue
# Waits for queues_sync, and for whoever else holds it off: who moves the beginning of a queue, or removes one.
cdef void queues_hold_sync(QueueTable *t) noexcept nogil
cdef void queues_let_sync(QueueTable *t) noexcept nogil

# ---- dispatch: one thread. Entries gather in memory until the buffer is full or queues_publish.
# Returns 0 (also for a repeated entry), or -errno from I/O. cq_offset must continue the queue (a gap is pre-blanked only in the
# first file of a queue, as RocketMQ; elsewhere it is stored where RocketMQ would store it and counted in queues_gaps).
# -EINVAL: the topic cannot be a directory. What failed changed nothing: the same call can be repeated.
cdef int queue_put(QueueTable *t, Queue *q, int64_t physical, int32_t size, int64_t tags_code, int64_t store_timestamp,
                   int64_t cq_offset) noexcept nogil
# Where the next entry of the queue comes. The dispatcher's thread.
cdef int64_t queue_next(const Queue *q) noexcept nogil
# Whether the record at log offset `physical`, whose place the queue has passed, says that its master has removed the queue: a
# removed queue begins at 0. The dispatcher's thread.
cdef bint queue_begins_anew(const Queue *q, int64_t physical, int64_t cq_offset) noexcept nogil
# The filter bit map of the record at log offset `physical`, for its ext unit where the table has ConsumeQueueExt: of the puts
# that follow, until the next call. size 0: none. The bytes are the caller's.
cdef void queues_bit_map(QueueTable *t, int64_t physical, const unsigned char *bits, int size) noexcept nogil
cdef int queues_publish(QueueTable *t) noexcept nogil       # writes what is buffered, then moves every max_offset
cdef int64_t queues_gaps(QueueTable *t) noexcept nogil      # entries stored elsewhere than they say, or not at all
# Whether an entry can lie at that queue offset: no reader could find it beyond, nor a put the next place. If not, the record at
# log offset `physical` is noted as one that gets none. The dispatcher's thread.
cdef bint queues_have_place(QueueTable *t, int64_t cq_offset, int64_t physical) noexcept nogil
# How many such records there were, the log offset of the last one in *at.
cdef int64_t queues_placeless(QueueTable *t, int64_t *at) noexcept nogil

# ---- durability: one thread at a time (the checkpoint thread, close). Syncs files with entries published since the last sync;
# pages_min 0: all of them. 0 or -errno (the first error; never retried).
cdef int queues_sync(QueueTable *t, int64_t pages_min) noexcept nogil
cdef bint queues_sync_failed(QueueTable *t) noexcept nogil      # for good: else the call lacked something, and is made again

# ---- reading: any thread. Copies up to `count` units from queue offset `from_offset` on, never past max_offset, never across
# the end of a file. Returns the number of units, 0 if there are none, or -errno. Of a batch queue: _batches.pxd.
cdef int64_t queue_read(QueueTable *t, Queue *q, int64_t from_offset, unsigned char *out, int64_t count) noexcept nogil
# Reads one ext unit by its address in a queue entry: real tags code, store time, bit map (up to bit_map_max bytes copied, its
# size returned). -ENOENT: no such unit.
cdef int64_t queue_read_ext(QueueTable *t, Queue *q, int64_t address, int64_t *tags_code, int64_t *store_timestamp,
                            unsigned char *bit_map, int64_t bit_map_max) noexcept nogil
# The same by a window, for entries in their order; *bit_map: see ext_look.
cdef int64_t queue_look_ext(QueueTable *t, Queue *q, ExtWindow *w, int64_t address, int64_t *tags_code,
                            int64_t *store_timestamp, const unsigned char **bit_map) noexcept nogil
# Start and modification time of the file that holds the queue offset / the n-th file: for the 4.9 time search.
# Of a batch queue there are none.
cdef int64_t queue_file_count(QueueTable *t, Queue *q) noexcept nogil
cdef int queue_file_at(QueueTable *t, Queue *q, int64_t i, int64_t *start_offset, int64_t *end_offset,
                       int64_t *modified_ms) noexcept nogil
