/* Descriptors of a process: how many its connections may have, and how many stay for its store. */
#ifndef RMQ_DESCRIPTORS_H
#define RMQ_DESCRIPTORS_H
#include <stdint.h>
#include <sys/resource.h>

/* Of a limit on open files: so many stay for the store, for files that are opened for a moment, and for the program. The queues
 * keep no more than a quarter open (base/machine/limits.py says the same). */
static inline int64_t rmq_descriptors_kept(int64_t limit) {
    int64_t kept = limit / 4 + 256;
    return kept < limit / 2 ? kept : limit / 2;
}

/* Whether a connection may keep the descriptor that the kernel gave it, which is the lowest free one: its number says how many
 * are in use. The limit is read each time, as it may change while the process runs. */
static inline int rmq_descriptor_spare(int fd) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur > INT32_MAX) return 1;
    int64_t limit = (int64_t)files.rlim_cur;
    return fd < limit - rmq_descriptors_kept(limit);
}
#endif
