/* The master's half of RocketMQ's HA protocol (DefaultHAService, DefaultHAConnection): one thread serves every slave, and
 * threads that wait for slaves do its work where it would only be one more wake-up. No Python, no GIL, and no knowledge of a
 * store: bytes of the log come through rmq_ha_log.
 *
 * A slave says int64 maxPhyOffset, again and again: the first one is where it wants to begin, each later one acknowledges.
 * The master sends frames: int64 log offset, int32 size, bytes; size 0 is a heartbeat. A slave holds one descriptor and 1 KiB
 * here, whatever it does, and never a file of the log. One that has said nothing yet gives its place to a newer one. */
#ifndef RMQ_HA_H
#define RMQ_HA_H
#include <string.h>
#include "rmq_wake.h"

enum { RMQ_HA_SLAVES = 64, RMQ_HA_ADDRESS = 64, RMQ_HA_NOTES = 256 };

typedef struct rmq_ha rmq_ha;

/* The log. `end` runs in any thread, the others in the HA thread, or in one that is in rmq_ha_push or rmq_ha_wait: in one at a
 * time, and `acked` with a lock that rmq_ha_push takes. */
typedef struct rmq_ha_log {
    void *ctx;
    int64_t (*end)(void *ctx);          /* offset up to which bytes may be sent */
    int64_t (*begin)(void *ctx);        /* offset of the first byte that is there */
    int64_t (*last_file)(void *ctx);    /* where an empty slave begins */
    /* The bytes at `offset`, and in *n how many there are up to the end of their file. NULL: they are gone; or *n is -errno. */
    const unsigned char *(*hold)(void *ctx, int64_t offset, int64_t *n, void **held);
    void (*release)(void *ctx, void *held);
    void (*acked)(void *ctx);           /* slaves have acknowledged more, or no more comes: from rmq_ha_stop. NULL: no matter */
} rmq_ha_log;

typedef struct rmq_ha_limits {
    int64_t heartbeat_ns;       /* of silence towards a slave, after which it gets a frame without bytes */
    int64_t silence_ns;         /* of a slave, after which its connection is closed */
    int64_t frame_bytes;        /* of a frame at most */
    int64_t behind_bytes;       /* a slave that lacks more does not count for rmq_ha_usable */
    int64_t rate;               /* bytes a second to all slaves together; 0: no bound */
} rmq_ha_limits;

/* What happened, for a Python thread to log. a, b: log offsets. */
enum rmq_ha_what {
    RMQ_HA_CAME,        /* a: where it begins, b: the master's end */
    RMQ_HA_WENT,        /* a: what it had acknowledged, b: the master's end */
    RMQ_HA_SILENT,      /* the same; it said nothing for silence_ns */
    RMQ_HA_AHEAD,       /* a: what it says to have, b: the master's end: refused */
    RMQ_HA_BEHIND,      /* a: where it wants to begin, b: the master's begin: refused */
    RMQ_HA_BAD,         /* a: what it says, b: what was sent to it: no slave says so */
    RMQ_HA_FULL,        /* there are RMQ_HA_SLAVES already */
    RMQ_HA_GONE,        /* a: bytes it still needed are deleted, b: the master's begin */
    RMQ_HA_UNREAD,      /* a: bytes it needs cannot be read, error: why */
    RMQ_HA_MUTE,        /* it had said nothing yet when another connection needed its place */
    /* of a slave */
    RMQ_HA_FOLLOWS,     /* a: its end, b: the master's, as far as known */
    RMQ_HA_LOST,        /* a: its end; b: 1 where the master closed before it sent anything; error */
    RMQ_HA_PARTED,      /* a: where the logs part, b: its end */
    RMQ_HA_SHORT,       /* a: where the master's log ends, b: its end, which is beyond */
    RMQ_HA_WRONG,       /* a: where the frame says to lie, b: where it has to */
    RMQ_HA_NO_RECORD,   /* a: where no whole record is, b: the size that it says */
    RMQ_HA_ROTTEN,      /* a: the record there has a wrong checksum */
    RMQ_HA_FAILED,      /* a: its end; error: of its own log */
    RMQ_HA_SELF,        /* the address is that of its own listener */
    RMQ_HA_FILE_END,    /* a: where a file of the master's log ends, b: where its own does */
};
typedef struct rmq_ha_note {
    int32_t what, error;
    int64_t a, b;
    char peer[RMQ_HA_ADDRESS];
} rmq_ha_note;
typedef struct rmq_ha_notes {   /* the newest ones */
    rmq_mutex lock;
    int64_t written, read;
    rmq_ha_note all[RMQ_HA_NOTES];
} rmq_ha_notes;
static inline void rmq_ha_say(rmq_ha_notes *n, int what, int error, int64_t a, int64_t b, const char *peer) {
    rmq_mutex_lock(&n->lock);
    rmq_ha_note *note = &n->all[n->written++ % RMQ_HA_NOTES];
    note->what = what;
    note->error = error;
    note->a = a;
    note->b = b;
    size_t size = strnlen(peer, RMQ_HA_ADDRESS - 1);
    memcpy(note->peer, peer, size);
    note->peer[size] = 0;
    if (n->written - n->read > RMQ_HA_NOTES) n->read = n->written - RMQ_HA_NOTES;
    rmq_mutex_unlock(&n->lock);
}
/* The oldest note that nobody has taken; 0: there is none. */
static inline int rmq_ha_heard(rmq_ha_notes *n, rmq_ha_note *out) {
    rmq_mutex_lock(&n->lock);
    int some = n->read < n->written;
    if (some) *out = n->all[n->read++ % RMQ_HA_NOTES];
    rmq_mutex_unlock(&n->lock);
    return some;
}

typedef struct rmq_ha_replica {
    char peer[RMQ_HA_ADDRESS];
    int64_t acked;              /* it has everything below; -1: it has said nothing yet */
    int64_t lag_bytes, lag_ms;  /* behind what may be sent */
    int64_t sent_bytes, connected_ms;
} rmq_ha_replica;

/* `listener`: a listening, non-blocking socket, the master's from now on. 0 or -errno, as the others. */
int rmq_ha_new(const rmq_ha_log *log, const rmq_ha_limits *limits, int listener, rmq_ha **out);
int rmq_ha_start(rmq_ha *ha);
void rmq_ha_stop(rmq_ha *ha);           /* joins the thread, closes every socket, lets waiters out. Idempotent */
void rmq_ha_free(rmq_ha *ha);           /* after the stop, and when nobody is in a call */
/* Around a fork, so that the child knows every socket: lock before it, unlock in the parent, rmq_ha_child in the child, which
 * closes its copies. A slave must see the parent's close. */
void rmq_ha_fork_lock(rmq_ha *ha);
void rmq_ha_fork_unlock(rmq_ha *ha);
void rmq_ha_child(rmq_ha *ha);

/* ---- any thread */
void rmq_ha_wake(rmq_ha *ha);           /* there may be more to send; a system call only where nobody is about to look */
void rmq_ha_push(rmq_ha *ha, int waits);    /* the same; where it is little, this thread sends it. waits: rmq_ha_wait follows */
int rmq_ha_replicas(rmq_ha *ha, rmq_ha_replica *out, int most);
rmq_ha_notes *rmq_ha_notes_of(rmq_ha *ha);
/* What `acks` slaves, 1 to RMQ_HA_SLAVES, have acknowledged; -1: nothing. Of two connections from one host the older one counts
 * only if it has spoken since the newer one came: it may be what is left of the same slave. */
int64_t rmq_ha_acked(const rmq_ha *ha, int acks);
/* How many replicas are in sync: slaves that lack less than behind_bytes of what is below `end`, and this master (RocketMQ:
 * inSyncReplicasNums). */
int rmq_ha_in_sync(rmq_ha *ha, int64_t end);
/* True if a slave is connected that lacks no more than behind_bytes of what is below `end` (RocketMQ: isSlaveOK). */
int rmq_ha_usable(rmq_ha *ha, int64_t end);
/* Until `acks` slaves have acknowledged `end`: 0; -ETIMEDOUT; -ECANCELED: the master has stopped. One of those who wait reads
 * what slaves say itself, for all. */
int rmq_ha_wait(rmq_ha *ha, int64_t end, int acks, int64_t timeout_ns);
int64_t rmq_ha_sent(const rmq_ha *ha);          /* bytes of the log, to all slaves */
#endif
