/* What the files of the master's HA thread share. */
#ifndef HA_H
#define HA_H
#include "rmq_ha.h"
#include "rmq_waiters.h"

enum { HEAD = 12, BATCH = 16, TURN_BYTES = 1 << 20, EVENTS = 32 };
#define SECOND INT64_C(1000000000)

typedef struct replica {
    rmq_ha *ha;
    int fd, slot;
    unsigned char in[8];
    int in_size;                /* bytes of a report that is not whole yet */
    int full, watched;          /* the socket takes nothing; epoll tells when it does again. watched -1: epoll is asked anew */
    int dead;
    int64_t next;               /* log offset behind the last frame that is whole on its way; -1: it said nothing yet */
    int64_t frame_size;         /* of the frame at `next` that is partly on its way; -1: none is */
    int64_t frame_sent;         /* bytes of it, its head included */
    int64_t acked;              /* where it begins, then what it acknowledges; -1: it said nothing yet */
    int64_t began;              /* the first byte that it is sent */
    int64_t sure;               /* what it has acknowledged of what it was sent; -1: nothing */
    int vouched;                /* it has spoken since the last connection came from its host */
    int64_t heard, wrote;       /* monotonic ns: it said something, it was sent something */
    int64_t came_ns;
    int64_t mark, mark_ns;      /* at mark_ns the log ended at `mark`, which it did not have yet */
    int64_t fresh_ns;           /* what the log had then, it has */
    int64_t sent_bytes;
    char peer[RMQ_HA_ADDRESS];
} replica;

struct epoll_event;

/* Everything without a lock of its own is under `round`, but for what is fixed. */
struct rmq_ha {
    rmq_ha_log log;
    rmq_ha_limits limits;
    int listener, epoll, wake;
    int stop, started, stopped;
    rmq_mutex round;            /* whoever has it handles what came, and sends: the thread, or one that waits for slaves */
    int asleep;                 /* atomic: nobody is about to look, so what comes has to wake the thread */
    int aside;                  /* atomic: it sleeps on `left`, as leaders do its work */
    int64_t until;              /* when it wakes by itself */
    int64_t reach;              /* atomic: all slaves whose sockets take something were sent the log up to here */
    rmq_mutex lead;             /* held by the one waiter that stands in epoll_wait beside the thread */
    int leading;                /* one does */
    int64_t leads;              /* how often one began */
    rmq_event left;             /* it has left, and something is to be done or to be expected */
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

/* ---- ha.c: `round` is held */
void ha_turn(rmq_ha *ha, const struct epoll_event *events, int n);      /* what came, and what may go */
int64_t ha_until_next(rmq_ha *ha);      /* ns until something is due without an event, -1: nothing is. Behind rmq_fence */
int ha_wait_ms(int64_t ns);
int ha_expects(const rmq_ha *ha);       /* a slave has not acknowledged all that was sent to it */
void ha_signal(rmq_ha *ha);             /* the thread, or the leader, is to look. Without `round`, too */

/* ---- ha_replica.c */
void replica_readable(replica *r, int ending);      /* ending: the peer has closed, or the connection is broken */
void replica_pump(replica *r);          /* sends what may go */
void replica_look(replica *r);          /* lag */
void replica_fail(replica *r, int what, int64_t a, int64_t b);
#endif
