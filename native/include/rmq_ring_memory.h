/* Memory that is mapped twice, back to back, so that a ring has no end to split at. */
#ifndef RMQ_RING_MEMORY_H
#define RMQ_RING_MEMORY_H
#include <errno.h>
#include <linux/mempolicy.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Pages from all nodes in turn, as producers and the commit may run on any; else all come from that of the thread that touches
 * them first. A sandbox may refuse it, and a kernel may know no nodes: then that is how it stays. */
static inline void rmq_ring_memory_interleave(void *base, size_t n) {
    unsigned long nodes[16] = {0}, bits = sizeof nodes * 8;
    if (syscall(SYS_get_mempolicy, NULL, nodes, bits, NULL, MPOL_F_MEMS_ALLOWED) == 0)
        (void)syscall(SYS_mbind, base, n, MPOL_INTERLEAVE, nodes, bits, 0);
}

static inline void rmq_ring_memory_free(void *base, int64_t size) { munmap(base, (size_t)size * 2); }

/* size: a multiple of the page size. Touched, MADV_DONTFORK; lock: mlock or fail; huge: asks for huge pages, *huge tells
 * whether the kernel took the advice. Returns 0 or -errno. */
static inline int rmq_ring_memory_new(int64_t size, int lock, int *huge, unsigned char **out) {
    int err = 0;
    int fd = memfd_create("rmq_store pool", MFD_CLOEXEC);
    if (fd < 0) return -errno;
    char *base = MAP_FAILED;
    size_t n = (size_t)size;
    if (ftruncate(fd, size) < 0) goto fail;
    /* one more huge page of address space, so that the ring can begin at the boundary huge pages need */
    size_t align = 2u << 20, span = n * 2 + align;
    char *space = mmap(NULL, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (space == MAP_FAILED) goto fail;
    base = (char *)(((uintptr_t)space + align - 1) & ~(uintptr_t)(align - 1));
    if (base > space) munmap(space, (size_t)(base - space));
    munmap(base + n * 2, (size_t)(space + span - (base + n * 2)));
    if (mmap(base, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) goto fail;
    if (mmap(base + n, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) goto fail;
    if (madvise(base, n * 2, MADV_DONTFORK) < 0) goto fail;
    rmq_ring_memory_interleave(base, n);    /* of the file, so of both its maps */
    if (*huge) *huge = madvise(base, n * 2, MADV_HUGEPAGE) == 0;
    memset(base, 0, n); /* the memory exists from now on ... */
    for (size_t i = 0; i < n; i += 4096) ((volatile char *)base)[n + i] = 0; /* ... and so do both sets of page tables */
    if (lock && mlock(base, n * 2) < 0) goto fail;
    close(fd);
    *out = (unsigned char *)base;
    return 0;
fail:
    err = errno;
    if (base != MAP_FAILED) munmap(base, n * 2);
    close(fd);
    return -err;
}
#endif
