/* Touching and locking pages of a map ahead of their use. Errors are returned, never fatal: the pages fault in later. */
#ifndef RMQ_PAGES_H
#define RMQ_PAGES_H
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* What addresses of maps are multiples of: 4 KiB on x86-64; 4, 16 or 64 KiB on arm64, as its kernel was built. */
static inline int64_t rmq_page_size(void) { return sysconf(_SC_PAGESIZE); }

static inline int rmq_pages_populate(void *at, size_t n) { return madvise(at, n, MADV_POPULATE_WRITE) < 0 ? -errno : 0; }
/* Brings pages of a mapped file into the page cache, one by one: a fault that finds none there reads ahead in folios of up to
 * 2 MiB, and a store into such a folio makes all of it dirty. */
static inline int rmq_pages_cache(void *at, size_t n) { return madvise(at, n, MADV_WILLNEED) < 0 ? -errno : 0; }
/* Faults read ahead (on), or bring one page each (off). */
static inline int rmq_pages_ahead(void *at, size_t n, int on) {
    return madvise(at, n, on ? MADV_NORMAL : MADV_RANDOM) < 0 ? -errno : 0;
}
static inline int rmq_pages_lock(void *at, size_t n) { return mlock(at, n) < 0 ? -errno : 0; }
static inline int rmq_pages_unlock(void *at, size_t n) { return munlock(at, n) < 0 ? -errno : 0; }
#endif
