/* What the files of the master's HA thread share. */
#ifndef HA_H
#define HA_H
#include "rmq_ha.h"
#include "rmq_waiters.h"

enum { HEAD = 12, BATCH = 16, TURN_BYTES = 1 << 20 };
#define SECOND INT64_C(1000000000)

typedef struct replica {
    rmq_ha *ha;
    int fd, slot;
    unsigned char in[8];
    int in_size;                /* bytes of a report that is not whole yet */
    int full, watched;          /* the socket takes nothing; epoll tells when it does again */
    int dead;
    int64_t next;               /* log offset behind the last frame that is whole on its way; -1: it said nothing yet */
    int64_t frame_size;         /* of the frame at `next` that is partly on its way; -1: none is */
    int64_t frame_sent;         /* bytes of it, its head included */
    int64_t acked;              /* where it begins, then what it acknowledges; -1: it said nothing yet */
    int64_t sure;               /* what it has acknowledged after its first word; -1: nothing */
    int vouched;                /* it has spoken since the last connection came from its host */
    int64_t heard, wrote;       /* monotonic ns: it said something, it was sent something */
    int64_t came_ns;
    int64_t mark, mark_ns;      /* at mark_ns the log ended at `mark`, which it did not have yet */
    int64_t fresh_ns;           /* what the log had then, it has */
    int64_t sent_bytes;
    char peer[RMQ_HA_ADDRESS];
} replica;

struct rmq_ha {
    rmq_ha_log log;
    rmq_ha_limits limits;
    int listener, epoll, wake;
    int stop, started, stopped;
    int asleep;                 /* the thread sleeps, or is about to: what comes has to wake it */
    int64_t now, accept_at;     /* accept_at: until then none is taken; 0: they are */
    int64_t budget, budget_ns;  /* bytes that may go now, with limits.rate */
    int64_t sent;
    unsigned turn;
    replica *all[RMQ_HA_SLAVES];
    int fds[RMQ_HA_SLAVES];     /* for children of fork */
    rmq_mutex lock;             /* of the replicas, for those who look */
    pthread_t thread;
    rmq_mutex fork_lock;        /* held while a socket is in no list, or in one that it has left */
    struct {
        int64_t acked;          /* so many slaves have acknowledged */
        rmq_waiters waiting;
    } by[RMQ_HA_SLAVES];        /* by their number, less 1 */
    rmq_ha_notes notes;
};

/* ---- ha_replica.c */
void replica_readable(replica *r);
void replica_pump(replica *r);          /* sends what may go */
void replica_look(replica *r);          /* lag */
void replica_fail(replica *r, int what, int64_t a, int64_t b);
#endif
