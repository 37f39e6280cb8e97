/* Whether a file has its space. What is mapped and has none ends the process by SIGBUS when the disk is full: a store into a
 * hole does, and in a file system in memory a read of a hole as well. A file that was only lengthened has holes (as Java makes
 * the files of its log), and so has a sparse copy. */
#ifndef RMQ_RESERVE_H
#define RMQ_RESERVE_H
#include <linux/magic.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/vfs.h>

/* Bytes of its length for which a file has no blocks: it lacks so many at least. 0 where the kernel does not tell. */
static inline int64_t rmq_holes(int fd) {
    struct stat s;
    if (fstat(fd, &s) < 0) return 0;
    int64_t lacks = (int64_t)s.st_size - (int64_t)s.st_blocks * 512;
    return lacks > 0 ? lacks : 0;
}
static inline int rmq_in_memory(int fd) {
    struct statfs s;
    return fstatfs(fd, &s) == 0 && (s.f_type == TMPFS_MAGIC || s.f_type == RAMFS_MAGIC);
}
#endif
