# One index file (RocketMQ: IndexFile.java, IndexHeader.java): a map of fixed size, all numbers big-endian.
#
#   position                 field                       position                 field
#   0   beginTimestamp  i8   of the first entry          40          slot 0       i4, number of its newest entry, 0 none
#   8   endTimestamp    i8   of the last entry           ...
#   16  beginPhyOffset  i8   of the first entry          40+4S       entry 0      never used
#   24  endPhyOffset    i8   of the last entry           40+4S+20e   entry e      keyHash i4, phyOffset i8,
#   32  hashSlotCount   i4   slots that were empty                                timeDiff i4 (seconds since beginTimestamp),
#   36  indexCount      i4   number of the next entry                             prevIndex i4 (the slot's former value)
#
# One thread puts; any thread selects, and holds the file while it does. What a file says is never believed: an entry is looked
# at only if its number is below the published count and inside the geometry, and a chain only ever leads to smaller numbers.
from libc.stdint cimport int32_t, int64_t

from rmq_store.base.io._io cimport rmq_identity, rmq_io, rmq_lost
from rmq_store.codec._layout cimport ENTRY_AT_KEY_HASH, ENTRY_AT_PHYSICAL_OFFSET, ENTRY_AT_PREVIOUS
from rmq_store.codec._record cimport rmq_get32, rmq_get64


cdef inline int32_t entry_hash(const unsigned char *e) noexcept nogil:
    return rmq_get32(e + ENTRY_AT_KEY_HASH)


cdef inline int64_t entry_physical(const unsigned char *e) noexcept nogil:
    # Log offset of the record.
    return rmq_get64(e + ENTRY_AT_PHYSICAL_OFFSET)


cdef inline int32_t entry_previous(const unsigned char *e) noexcept nogil:
    # The entry before it in its slot, 0: none.
    return rmq_get32(e + ENTRY_AT_PREVIOUS)


# Store timestamp of the record at a log offset; -1: there is no record; -errno: it cannot be read.
ctypedef int64_t (*StoreTime)(void *ctx, int64_t physical) noexcept nogil

cdef struct IndexFile:
    const rmq_io *io
    unsigned char *map
    unsigned char *entries      # entry 0 in the map
    char *path
    int64_t name                # 17 digits: local time of its making
    int64_t size
    # The header as the putting thread knows it, written through at once. Readers load what they need with rmq_load.
    int64_t begin_timestamp
    int64_t end_timestamp
    int64_t begin_physical
    int64_t end_physical
    int32_t slot_count
    int count                   # published: entries below it can be read
    int32_t slots
    int32_t entries_max
    int sealed                  # published: full, and nothing more will be stored
    int dirty                   # stored into since the last sync
    int refs
    rmq_identity identity       # no descriptor is kept
    bint writable
    int guard                   # as in LogFile
    rmq_lost lost

cdef struct IndexHeader:
    int64_t begin_timestamp
    int64_t end_timestamp
    int64_t end_physical
    int32_t count

# 0 or -errno; -EINVAL: the file has another size than the geometry asks for. The file comes with one hold.
cdef int index_file_open(const rmq_io *io, const char *dir, int64_t name, int32_t slots, int32_t entries_max, bint writable,
                         IndexFile **out) noexcept nogil
# The name of a file that is made at that time: its local time (UtilAll.timeMillisToHumanString, yyyyMMddHHmmssSSS).
cdef int64_t index_file_name_at(int64_t wall_ms) noexcept nogil
# Makes a file in tmp_dir, reserved, seeded and synced, and renames it into dir. A seed of 0 writes nothing.
cdef int index_file_create(const rmq_io *io, const char *dir, const char *tmp_dir, int64_t name, int32_t slots,
                           int32_t entries_max, int64_t seed_physical, int64_t seed_timestamp, IndexFile **out) noexcept nogil
# Guards its map (rmq_guard.h): 0 or -errno. What is gone then reads as zeros, and f.lost tells.
cdef int index_file_guard(IndexFile *f) noexcept nogil
cdef void index_file_hold(IndexFile *f) noexcept nogil
cdef void index_file_release(IndexFile *f) noexcept nogil       # the last one unmaps

# Any thread. Of a read-only file the header is read anew each time: another process may be writing it.
cdef void index_file_header(IndexFile *f, IndexHeader *out) noexcept nogil
# The putting thread. False: full. `hash` is not negative.
cdef bint index_file_put(IndexFile *f, int32_t hash, int64_t physical, int64_t store_timestamp) noexcept nogil
cdef void index_file_prefetch(IndexFile *f, int32_t hash) noexcept nogil
# Any thread. Appends offsets to out[n..max) (IndexFile.selectPhyOffset); returns the new n.
cdef int64_t index_file_select(IndexFile *f, int32_t hash, int64_t begin, int64_t end, int64_t *out, int64_t n,
                               int64_t max) noexcept nogil
cdef int index_file_sync(IndexFile *f) noexcept nogil           # any one thread; 0 or -errno
# While nobody puts or selects: takes back the entries at or beyond `physical`. Crash-safe and repeatable: slots, sync, header,
# sync, entries, sync. Returns how many entries are left, or -errno; with none left nothing was touched.
cdef int64_t index_file_cut(IndexFile *f, int64_t physical, StoreTime store_time, void *ctx) noexcept nogil
