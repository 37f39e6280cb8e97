/* What a call says that fails before it does anything, because the process or the machine lacks something for a while: room,
 * quota, inodes, descriptors, memory, maps, threads. Whoever meets it keeps what it has, waits RMQ_WANT_RETRY_NS, and tries
 * again: it is no reason for a fence. A sync is not tried again whatever it says (a device that is full when pages are written
 * back has lost them), so nobody asks this about its result. */
#ifndef RMQ_WANT_H
#define RMQ_WANT_H
#include <errno.h>

#define RMQ_WANT_RETRY_NS 100000000

/* No room: as only a full disk, a used-up quota, or a lack of inodes, says. */
static inline int rmq_is_full(int rc) { return rc == -ENOSPC || rc == -EDQUOT; }

static inline int rmq_is_want(int rc) {
    return rmq_is_full(rc) || rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM || rc == -EAGAIN;
}

/* Of a call that opens and then syncs: true where it says that it did not come to the sync. */
static inline int rmq_is_want_of_open(int rc) { return rc == -EMFILE || rc == -ENFILE; }

#endif
