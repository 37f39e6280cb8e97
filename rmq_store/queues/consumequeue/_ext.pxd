# ConsumeQueueExt: per entry a unit with the real tags code, the store time and a filter bit map, addressed by the entry's tags
# code. Threads: ext_read any; the others the dispatcher's, or recovery's before it starts. All return 0 or -errno.
#
#   unit   0 size 2   2 tagsCode 8   10 msgStoreTime 8   18 bitMapSize 2   20 bit map      a file ends with i2 -1 after its last
from libc.stdint cimport int64_t

from rmq_store.queues.consumequeue._descriptors cimport FileCache, UnitFiles


cdef enum:
    EXT_WINDOW_SIZE = 4096

cdef struct ExtWindow:
    # What a reader of entries in their order has read ahead. size 0: nothing yet.
    int64_t at
    int64_t size
    unsigned char[EXT_WINDOW_SIZE] data


# Buffers one unit and sets *address; leaves it alone where the address space is used up, or no file has room for the unit (the
# plain tags code is stored then, as RocketMQ does). The caller has lent f a buffer. size: of the bit map; 0: none.
cdef int ext_put(FileCache *c, UnitFiles *f, int64_t tags_code, int64_t store_timestamp, const unsigned char *bit_map, int size,
                 int64_t *address) noexcept nogil
# The bit map's size; -ENOENT: no unit there.
cdef int64_t ext_read(FileCache *c, UnitFiles *f, int64_t address, int64_t *tags_code, int64_t *store_timestamp,
                      unsigned char *bit_map, int64_t bit_map_max) noexcept nogil
# The same by a window, one read for many units. *bit_map: into the window, valid until the next call; NULL: it is larger than that.
cdef int64_t ext_look(FileCache *c, UnitFiles *f, ExtWindow *w, int64_t address, int64_t *tags_code, int64_t *store_timestamp,
                      const unsigned char **bit_map) noexcept nogil
# The end of the unit that `address` leads to: nothing refers to what lies behind. address 1 (or no unit there): the end of all
# units, by walking every file. zero: stale bytes behind it are cleared. write False: only the positions are set.
cdef int ext_recover(FileCache *c, UnitFiles *f, int64_t address, bint zero, bint write) noexcept nogil
cdef int ext_drop_before(FileCache *c, UnitFiles *f, int64_t address) noexcept nogil     # truncateByMinAddress
