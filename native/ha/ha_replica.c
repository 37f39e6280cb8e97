/* One slave: its reports, and the frames that it gets. */
#define _GNU_SOURCE
#include <sys/socket.h>
#include <sys/uio.h>
#include "ha.h"
#include "rmq_bytes.h"

enum { CHUNKS = 16 };

void replica_fail(replica *r, int what, int64_t a, int64_t b) {
    if (!r->dead) rmq_ha_say(&r->ha->notes, what, 0, a, b, r->peer);
    r->dead = 1;
}

/* ---- what comes */

static void begin(replica *r, int64_t at, int64_t end) {
    rmq_ha *ha = r->ha;
    int64_t first = ha->log.begin(ha->log.ctx);
    if (at > end) {
        replica_fail(r, RMQ_HA_AHEAD, at, end);
    } else if (at > 0 && at < first) {
        replica_fail(r, RMQ_HA_BEHIND, at, first);
    } else {
        rmq_mutex_lock(&ha->lock);
        r->next = at > 0 ? at : ha->log.last_file(ha->log.ctx);
        r->began = r->next;
        r->acked = at;
        r->vouched = 1;
        r->wrote = ha->now - ha->limits.heartbeat_ns;       /* that there is nothing for it is told at once */
        rmq_mutex_unlock(&ha->lock);
        rmq_ha_say(&ha->notes, RMQ_HA_CAME, 0, r->next, end, r->peer);
    }
}

/* What a slave reports after its first word was given to it before: nobody acknowledges what was not sent. Of a frame that is
 * partly on its way a slave may have stored the first records. Who repeats where it began acknowledges nothing either: its log
 * may be another up to there. A slave of this library begins before its end, and so compares. */
static void acknowledge(replica *r, int64_t at) {
    int64_t sent = r->next + (r->frame_size >= 0 && r->frame_sent > HEAD ? r->frame_sent - HEAD : 0);
    if (at < 0 || (at > sent && at > r->acked)) {
        replica_fail(r, RMQ_HA_BAD, at, sent);
    } else {
        rmq_mutex_lock(&r->ha->lock);
        if (at > r->acked) r->acked = at;
        r->vouched = 1;
        rmq_mutex_unlock(&r->ha->lock);
        if (at > r->began && at > r->sure) r->sure = at;
    }
}

/* What so many slaves have, for each number of them. */
static void count_acks(rmq_ha *ha) {
    int64_t all[RMQ_HA_SLAVES];
    int n = 0, moved = 0;
    for (int i = 0; i < RMQ_HA_SLAVES; i++) {
        const replica *r = ha->all[i];
        if (r == NULL || r->sure < 0 || !r->vouched) continue;
        int k = n++;
        for (; k > 0 && all[k - 1] < r->sure; k--) all[k] = all[k - 1];
        all[k] = r->sure;
    }
    for (int i = 0; i < n; i++) {
        if (all[i] <= ha->by[i].acked) continue;
        moved = 1;
        rmq_publish(&ha->by[i].acked, all[i]);
        rmq_waiters_pass(&ha->by[i].waiting, all[i]);
    }
    if (moved && ha->log.acked) ha->log.acked(ha->log.ctx);
}

static void report(replica *r, int64_t at) {
    rmq_ha *ha = r->ha;
    if (r->next >= 0) {
        acknowledge(r, at);
    } else if (at < 0) {
        replica_fail(r, RMQ_HA_BAD, at, 0);
    } else {        /* nothing was compared yet: this word says where to begin, and acknowledges nothing */
        begin(r, at, ha->log.end(ha->log.ctx));
        if (!r->dead) replica_look(r);
        return;
    }
    if (r->dead) return;
    replica_look(r);
    count_acks(ha);
}

/* epoll tells of edges: all that is there is read. Of a peer that sends without end, the rest in the next round. */
void replica_readable(replica *r, int ending) {
    unsigned char chunk[4096];
    for (int more = CHUNKS; more > 0 && !r->dead; more--) {
        ssize_t n = recv(r->fd, chunk, sizeof chunk, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (n <= 0) {
            replica_fail(r, RMQ_HA_WENT, r->acked, r->ha->log.end(r->ha->log.ctx));
            return;
        }
        r->heard = r->ha->now;
        for (ssize_t i = 0; i < n && !r->dead; i++) {
            r->in[r->in_size++] = chunk[i];
            if (r->in_size < 8) continue;
            r->in_size = 0;
            report(r, rmq_get64(r->in));
        }
        if (n < (ssize_t)sizeof chunk && !ending) return;       /* what comes from here on makes an edge of its own */
    }
    r->watched = -1;
}

void replica_look(replica *r) {
    rmq_ha *ha = r->ha;
    int64_t end = ha->log.end(ha->log.ctx);
    if (r->next < 0) return;
    rmq_mutex_lock(&ha->lock);
    if (r->acked >= end) {
        r->fresh_ns = ha->now;
        r->mark = -1;
    } else if (r->mark < 0 || r->acked >= r->mark) {
        if (r->mark >= 0) r->fresh_ns = r->mark_ns;
        r->mark = end;
        r->mark_ns = ha->now;
    }
    rmq_mutex_unlock(&ha->lock);
}

/* ---- what goes */

typedef struct parts {
    struct iovec at[2 * BATCH];
    unsigned char heads[BATCH][HEAD];
    int64_t sizes[BATCH];
    int count, frames;
} parts;

static void add(parts *p, const void *from, int64_t n) {
    if (n > 0) p->at[p->count++] = (struct iovec){(void *)(uintptr_t)from, (size_t)n};
}

/* Frames from `next` on, the first one without what has gone of it, all of one file. How many bytes of the log; -ENOENT: they
 * are gone; another -errno: they cannot be read. */
static int64_t gather(replica *r, parts *p, int64_t most, void **held) {
    rmq_ha *ha = r->ha;
    int64_t at = r->next, end = ha->log.end(ha->log.ctx), there = 0, bytes = 0, of_file = 0;
    int64_t body_sent = r->frame_size >= 0 && r->frame_sent > HEAD ? r->frame_sent - HEAD : 0;
    const unsigned char *from = NULL;
    p->count = p->frames = 0;
    while (p->frames < BATCH && bytes < most) {
        int64_t size = p->frames == 0 && r->frame_size >= 0 ? r->frame_size : end - at;
        if (size > ha->limits.frame_bytes) size = ha->limits.frame_bytes;
        if (size <= 0 && !(p->frames == 0 && r->frame_size == 0)) break;
        if (from == NULL && size > 0) {
            if ((from = ha->log.hold(ha->log.ctx, at + body_sent, &there, held)) == NULL) {
                return there < 0 ? there : -ENOENT;
            }
            of_file = at + body_sent + there;
        }
        if (at + size > of_file && size > 0) size = of_file - at;
        if (size <= 0 && p->frames > 0) break;
        int64_t head_sent = p->frames == 0 && r->frame_size >= 0 ? r->frame_sent < HEAD ? r->frame_sent : HEAD : 0;
        int64_t gone = p->frames == 0 ? body_sent : 0;
        unsigned char *head = p->heads[p->frames];
        rmq_put64(head, at);
        rmq_put32(head + 8, (int32_t)size);
        add(p, head + head_sent, HEAD - head_sent);
        if (size > 0) add(p, from + (at + gone - (of_file - there)), size - gone);
        p->sizes[p->frames++] = size;
        at += size;
        bytes += size - gone;
    }
    return bytes;
}

/* `n` bytes have gone: what of the frames is whole on its way, and what partly. */
static void gone(replica *r, const parts *p, int64_t n) {
    int64_t before = r->frame_size >= 0 ? r->frame_sent : 0;
    for (int i = 0; i < p->frames; i++) {
        int64_t left = HEAD + p->sizes[i] - (i == 0 ? before : 0);
        if (n < left) {
            r->frame_size = n > 0 || (i == 0 && before > 0) ? p->sizes[i] : -1;
            r->frame_sent = n + (i == 0 ? before : 0);
            return;
        }
        n -= left;
        r->next += p->sizes[i];
        r->frame_size = -1;
        r->frame_sent = 0;
    }
}

static int64_t allowed(rmq_ha *ha) {
    if (ha->limits.rate == 0) return TURN_BYTES;
    int64_t most = ha->limits.rate / 10;
    ha->budget += (int64_t)((double)(ha->now - ha->budget_ns) / 1e9 * (double)ha->limits.rate);
    ha->budget_ns = ha->now;
    if (ha->budget > most) ha->budget = most;
    return ha->budget < TURN_BYTES ? ha->budget : TURN_BYTES;
}

static void unread(replica *r, int error) {
    rmq_ha_say(&r->ha->notes, RMQ_HA_UNREAD, error, r->next, 0, r->peer);
    r->dead = 1;
}

/* One call of the kernel. 1: there may be more; 0: the socket is full, or there is nothing. */
static int send_some(replica *r, int64_t most) {
    parts p;
    void *held = NULL;
    int64_t bytes = gather(r, &p, most, &held);
    if (bytes < 0) {
        if (bytes == -ENOENT) {
            replica_fail(r, RMQ_HA_GONE, r->next, r->ha->log.begin(r->ha->log.ctx));
        } else {
            unread(r, (int)-bytes);
        }
        return 0;
    }
    if (p.count == 0) return 0;
    struct msghdr message = {.msg_iov = p.at, .msg_iovlen = (size_t)p.count};
    ssize_t n = sendmsg(r->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    int error = errno;
    if (held) r->ha->log.release(r->ha->log.ctx, held);
    if (n < 0) {
        if (error == EAGAIN || error == EINTR) {
            r->full = 1;
        } else if (error == EFAULT) {       /* the kernel has met a page that the device does not give */
            unread(r, EIO);
        } else {
            replica_fail(r, RMQ_HA_WENT, r->acked, r->ha->log.end(r->ha->log.ctx));
        }
        return 0;
    }
    int64_t before = r->next;
    rmq_mutex_lock(&r->ha->lock);
    gone(r, &p, n);
    r->sent_bytes += r->next - before;
    rmq_mutex_unlock(&r->ha->lock);
    rmq_count(&r->ha->sent, r->next - before);
    r->wrote = r->ha->now;
    r->ha->budget -= n;
    if (r->frame_size >= 0) r->full = 1;
    return r->frame_size < 0;
}

void replica_pump(replica *r) {
    int64_t begun = r->sent_bytes;
    if (r->next < 0 || r->dead || r->full) return;
    while (!r->dead && r->sent_bytes - begun < TURN_BYTES) {
        int64_t most = allowed(r->ha);
        if (most <= 0) break;
        if (!send_some(r, most)) break;
    }
    if (!r->dead && !r->full && r->frame_size < 0 && r->next >= r->ha->log.end(r->ha->log.ctx)
        && r->ha->now - r->wrote >= r->ha->limits.heartbeat_ns) {
        r->frame_size = 0;          /* a heartbeat is a frame without bytes: there is no more */
        r->frame_sent = 0;
        send_some(r, 1);
    }
}
