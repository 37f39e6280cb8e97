# ConsumeQueueExt: per entry a unit with the real tags code, the store time and a filter bit map, addressed by the entry's tags
# code. Threads: ext_read any; the others the dispatcher's, or recovery's before it starts. All return 0 or -errno.
#
#   unit   0 size 2   2 tagsCode 8   10 msgStoreTime 8   18 bitMapSize 2   20 bit map      a file ends with i2 -1 after its last
from libc.stdint cimport int64_t

from rmq_store.queues.consumequeue._descriptors cimport FileCache, UnitFiles


# Buffers one unit without bit map and sets *address; leaves it alone where the address space is used up (the plain tags code is
# stored then, as RocketMQ does). The caller has lent f a buffer.
cdef int ext_put(FileCache *c, UnitFiles *f, int64_t tags_code, int64_t store_timestamp, int64_t *address) noexcept nogil
# The bit map's size; -ENOENT: no unit there.
cdef int64_t ext_read(FileCache *c, UnitFiles *f, int64_t address, int64_t *tags_code, int64_t *store_timestamp,
                      unsigned char *bit_map, int64_t bit_map_max) noexcept nogil
# The end of the unit that `address` leads to: nothing refers to what lies behind. address 1 (or no unit there): the end of all
# units, by walking every file. zero: stale bytes behind it are cleared. write False: only the positions are set.
cdef int ext_recover(FileCache *c, UnitFiles *f, int64_t address, bint zero, bint write) noexcept nogil
cdef int ext_drop_before(FileCache *c, UnitFiles *f, int64_t address) noexcept nogil     # truncateByMinAddress
