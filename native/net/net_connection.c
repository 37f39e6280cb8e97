/* One connection of the network thread: what comes is cut into frames, what goes is written as far as the socket takes it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include "net.h"

uint64_t rmq_connection_id(const rmq_connection *c) { return c->id; }
const rmq_address *rmq_connection_peer(const rmq_connection *c) { return &c->peer; }
void **rmq_connection_own(rmq_connection *c) { return c->own; }
int rmq_connection_listener(const rmq_connection *c) { return c->listener; }
int64_t rmq_connection_waited(const rmq_connection *c) { return c->stalled_since ? c->net->now - c->stalled_since : 0; }
static size_t unsent(const rmq_connection *c) { return c->out_size - c->out_from; }
int rmq_connection_asked(const rmq_connection *c) { return c->asked; }
int rmq_connection_slow(const rmq_connection *c) { return unsent(c) > (size_t)c->net->limits.unread; }

void connection_mark(rmq_connection *c) {
    c->marked = 1;
    if (c->listed) return;
    c->listed = 1;
    c->next_marked = c->net->marked;
    c->net->marked = c;
}

static void fail(rmq_connection *c) {
    c->dead = 1;
    connection_mark(c);
}

/* ---- what goes */

unsigned char *rmq_connection_room(rmq_connection *c, size_t n) {
    connection_mark(c);
    if (c->out_room - c->out_size >= n) return c->out + c->out_size;
    if (c->out_from > 0) {
        memmove(c->out, c->out + c->out_from, unsent(c));
        c->out_size -= c->out_from;
        c->out_from = 0;
        if (c->out_room - c->out_size >= n) return c->out + c->out_size;
    }
    size_t room = c->out_room ? c->out_room : 4096;
    while (room - c->out_size < n) room *= 2;
    unsigned char *out = realloc(c->out, room);
    if (out == NULL) {
        c->dead = 1;
        return NULL;
    }
    c->out = out;
    c->out_room = room;
    return out + c->out_size;
}

void rmq_connection_filled(rmq_connection *c, size_t n) {
    c->out_size += n;
    c->net->unread += (int64_t)n;
}

static void sent(rmq_connection *c, size_t n) {
    rmq_count(&c->net->counts.bytes_out, (int64_t)n);
    c->net->unread -= (int64_t)n;
    c->out_from += n;
    if (c->out_from < c->out_size) return;
    c->out_from = c->out_size = 0;
    if (c->out_room > OUT_KEPT) {       /* what a burst needed is not kept for ever */
        free(c->out);
        c->out = NULL;
        c->out_room = 0;
    }
}

static ssize_t send_parts(rmq_connection *c, struct iovec *parts, int count) {
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};
    ssize_t n;
    do n = sendmsg(c->fd, &message, MSG_NOSIGNAL | (c->more ? MSG_MORE : 0));
    while (n < 0 && errno == EINTR);
    if (n >= 0) {
        c->gathers = c->more;
        return n;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    fail(c);
    return -1;
}

/* The longest piece, in the mean, that a copy costs less than the kernel's way to it: bench/load/broker.py, where a queue's
 * messages of 1 KiB lie apart in the log. Long ones go from where they are. */
static const size_t SHORT_PIECE = 4096;

static void send_from_place(rmq_connection *c, struct iovec *parts, int count) {
    parts[0] = (struct iovec){c->out + c->out_from, unsent(c)};
    int first = parts[0].iov_len == 0;
    ssize_t n = c->dead || (c->events & EPOLLOUT) ? 0 : send_parts(c, parts + first, count - first);
    if (n < 0) return;
    size_t left = (size_t)n;
    if (!first) {
        size_t own = left < parts[0].iov_len ? left : parts[0].iov_len;
        if (own) sent(c, own);
        left -= own;
    }
    rmq_count(&c->net->counts.bytes_out, (int64_t)left);
    for (int i = 1; i < count; i++) {       /* what the socket did not take is copied: nothing of the log is held for a peer */
        size_t gone = left < parts[i].iov_len ? left : parts[i].iov_len, rest = parts[i].iov_len - gone;
        left -= gone;
        if (rest == 0) continue;
        unsigned char *to = rmq_connection_room(c, rest);
        if (to == NULL) return;
        memcpy(to, (unsigned char *)parts[i].iov_base + gone, rest);
        rmq_connection_filled(c, rest);
    }
}

static void unstage(rmq_net *net) {
    struct iovec parts[2] = {{NULL, 0}, {net->stage, net->staged}};
    rmq_connection *c = net->staged_of;
    if (c == NULL) return;
    net->staged = 0;
    net->staged_of = NULL;
    send_from_place(c, parts, 2);
}

void rmq_connection_parts(rmq_connection *c, struct iovec *parts, int count) {
    rmq_net *net = c->net;
    size_t bytes = 0;
    for (int i = 1; i < count; i++) bytes += parts[i].iov_len;
    int copied = bytes <= STAGE_SIZE && bytes < SHORT_PIECE * (size_t)(count - 1);
    if (net->staged_of != c || !copied || net->staged + bytes > STAGE_SIZE) unstage(net);
    if (!copied) {
        send_from_place(c, parts, count);
        return;
    }
    for (int i = 1; i < count; i++) {
        memcpy(net->stage + net->staged, parts[i].iov_base, parts[i].iov_len);
        net->staged += parts[i].iov_len;
    }
    net->staged_of = c;
    if (!c->more) unstage(net);
}

/* Sockets take less than is answered, and it would take all memory: closes the one that leaves most unread. */
static void close_slowest(rmq_net *net) {
    rmq_connection *slowest = NULL;
    for (int64_t i = 0; i < net->limits.connections; i++) {
        rmq_connection *c = net->slots[i];
        if (c && !c->dead && (slowest == NULL || unsent(c) > unsent(slowest))) slowest = c;
    }
    if (slowest == NULL) return;
    net->unread -= (int64_t)unsent(slowest);
    free(slowest->out);             /* now: what is over the limit must not wait for the end of the round */
    slowest->out = NULL;
    slowest->out_from = slowest->out_size = slowest->out_room = 0;
    fail(slowest);
}

static void watch(rmq_connection *c) {
    uint32_t events = (unsent(c) ? (uint32_t)EPOLLOUT : 0)
                      | (c->stalled || c->ending || rmq_connection_slow(c) ? 0 : (uint32_t)EPOLLIN);
    if (events == c->events) return;
    struct epoll_event event = {.events = events, .data.u64 = c->id};
    if (epoll_ctl(c->net->epoll, EPOLL_CTL_MOD, c->fd, &event) < 0) c->dead = 1;
    c->events = events;
}

static void count_kept(rmq_connection *c, size_t unfinished, size_t waiting) {
    c->net->buffered += (int64_t)unfinished - (int64_t)c->counted;
    c->net->waiting += (int64_t)waiting - (int64_t)c->waiting;
    c->counted = unfinished;
    c->waiting = waiting;
}

static void bury(rmq_connection *c) {
    rmq_net *net = c->net;
    uint32_t slot = (uint32_t)c->id;
    if (net->service.closed) net->service.closed(net->service.ctx, c);
    queue_farewell(c);
    rmq_publish32(&net->fds[slot], -1);
    rmq_count(&net->counts.connections, -1);    /* before the peer sees the end */
    close(c->fd);
    net->slots[slot] = NULL;
    net->generations[slot]++;
    net->unused[net->unused_count++] = slot;
    count_kept(c, 0, 0);
    net->unread -= (int64_t)unsent(c);
    free(c->out);
    c->out = NULL;
    c->out_from = c->out_size = c->out_room = 0;
    net->stalled -= c->stalled;
    c->fd = -1;
    c->next_dead = net->dead;       /* freed at the end of the round: it may stand in the list of marks */
    net->dead = c;
}

/* Whoever reads is alive, also while it is not read. */
static void took(rmq_connection *c, int slow) {
    c->heard = c->net->now;
    if (slow && c->net->service.taken) c->net->service.taken(c->net->service.ctx, c);
}

/* What waits in the kernel for more goes. */
static void push(rmq_connection *c) {
    int on = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    c->gathers = 0;
}

void connection_settle(rmq_connection *c) {
    c->marked = 0;
    if (c->fd < 0) return;
    if (!c->dead && unsent(c)) {
        struct iovec part = {c->out + c->out_from, unsent(c)};
        int slow = rmq_connection_slow(c);
        ssize_t n = send_parts(c, &part, 1);
        if (n > 0 && c->events & EPOLLOUT) took(c, slow);
        if (n > 0) sent(c, (size_t)n);
        if (unsent(c) && c->net->unread > c->net->limits.unread_all) close_slowest(c->net);
    }
    if (!c->dead && c->gathers) push(c);
    if (!c->dead) watch(c);
    if (c->dead || (c->ending && unsent(c) == 0)) {
        bury(c);
        c->marked = 0;
    } else if (c->held_up && !rmq_connection_slow(c)) {
        connection_retry(c);
    }
}

void connection_free(rmq_connection *c) {
    free(c->in);
    free(c->out);
    free(c->farewell);
    free(c);
}

/* ---- what comes */

/* Whether a request stores something, also of a peer that does not wait for the answer: sends, offsets, send-backs, ends of
 * transactions and replies. */
static int changes(int32_t code) {
    return code == 10 || code == 310 || code == 320 || code == 15 || code == 36 || code == 37 || code == 324 || code == 325;
}

/* What a request costs the service, a signature over all of it perhaps, it costs once: one that is to be passed on and finds no
 * room asks for room alone. Its peer is not read until then, and so is not silent either. */
static rmq_done serve(rmq_connection *c, const unsigned char *at, int32_t size) {
    rmq_net *net = c->net;
    rmq_done done = RMQ_PASS;
    if (c->passes) {
        if (net->service.taken) net->service.taken(net->service.ctx, c);
    } else {
        if (rmq_frame_decode(at, size, &net->frame) < 0) return RMQ_BAD;
        if (net->service.request && !(net->frame.flag & RMQ_RESPONSE))
            done = net->service.request(net->service.ctx, c, &net->frame);
        c->asked = done == RMQ_LATER;
        if (done != RMQ_PASS) return done;
        c->stays = (char)changes(net->frame.code);
    }
    done = queue_pass(c, at, size, c->stays);
    c->passes = done == RMQ_LATER;
    return done;
}

/* What begins like this is no frame: whose clients these are is said once a minute. */
static void say_stranger(rmq_net *net, const unsigned char *at) {
    int http2 = memcmp(at, "PRI ", 4) == 0, tls = at[0] == TLS_HANDSHAKE && at[1] == 3;
    if ((!http2 && !tls) || (net->stranger_at && net->now - net->stranger_at < 60 * SECOND)) return;
    if (queue_say(net, http2 ? RMQ_HTTP2 : RMQ_TLS_UNASKED) == 0) net->stranger_at = net->now;
}

/* Serves the whole frames of [at, at + n). How many bytes they were, up to where the connection stalls or dies. */
static size_t serve_all(rmq_connection *c, const unsigned char *at, size_t n) {
    size_t done = 0;
    int64_t served = 0;
    c->held_up = 0;
    while (!c->dead && !c->ending) {
        if (rmq_connection_slow(c)) {
            c->held_up = 1;
            break;
        }
        int32_t size = rmq_frame_size(at + done, n - done);
        if (size == 0) break;
        rmq_done rc = RMQ_BAD;
        if (size > 0 && (size_t)size > n - done) {
            rc = large_begins(c, at + done, n - done, size);
            if (rc == RMQ_DONE) done = n;
            if (rc != RMQ_BAD) break;
        } else if (size > 0) {
            c->more = n - done > (size_t)size;      /* so much of its answer may wait for the next one's */
            rc = serve(c, at + done, size);
            c->more = c->may_be_large = 0;
        }
        if (rc == RMQ_BAD) {
            if (size < 0) say_stranger(c->net, at + done);
            rmq_count(&c->net->counts.bad, 1);
            c->ending = 1;          /* what came before it gets its answers */
            connection_mark(c);
            done = n;
            break;
        }
        if (rc == RMQ_LATER) {
            rmq_count(&c->net->counts.stalls, 1);
            c->net->stalled += !c->stalled;
            c->stalled = 1;
            if (c->stalled_since == 0) c->stalled_since = c->net->now;     /* all that waits behind it had come by then */
            break;
        }
        done += (size_t)size;
        served++;
    }
    unstage(c->net);
    if (!c->stalled) c->stalled_since = 0;
    if (served && c->net->service.turn) c->net->service.turn(c->net->service.ctx);
    rmq_count(&c->net->counts.requests, served);
    return done;
}

static void close_kept(rmq_connection *c) {
    if (c == NULL) return;
    count_kept(c, 0, 0);
    free(c->in);                /* now, as in close_slowest */
    c->in = NULL;
    c->in_size = c->in_room = 0;
    rmq_count(&c->net->counts.bad, 1);
    fail(c);
}

/* More waits for room than may: closes the one of which most waits. */
static void close_waiting(rmq_net *net) {
    rmq_connection *most = NULL;
    for (int64_t i = 0; i < net->limits.connections; i++) {
        rmq_connection *c = net->slots[i];
        if (c && !c->dead && c->waiting > (most ? most->waiting : 0)) most = c;
    }
    close_kept(most);
}

/* More is unfinished than may be: closes the one that has most of it, and of equals the one that takes longest. A slow upload
 * of ordinary size does not pay for others that begin large frames again and again. */
static void close_unfinished(rmq_net *net) {
    rmq_connection *most = NULL;
    for (int64_t i = 0; i < net->limits.connections; i++) {
        rmq_connection *c = net->slots[i];
        if (c == NULL || c->dead || c->counted == 0) continue;
        if (most == NULL || c->counted > most->counted
            || (c->counted == most->counted && c->unfinished_since < most->unfinished_since))
            most = c;
    }
    close_kept(most);
}

/* Keeps bytes, which stand in the chunk or, behind what was served, in c->in. */
static void keep(rmq_connection *c, const unsigned char *at, size_t n) {
    rmq_net *net = c->net;
    if (c->in == NULL || at != c->in) c->unfinished_since = net->now;      /* else nothing of it was served */
    if (n == 0) {
        free(c->in);
        c->in = NULL;
        c->in_size = c->in_room = 0;
        count_kept(c, 0, 0);
        return;
    }
    if (c->in == NULL || at < c->in || at >= c->in + c->in_room) {
        if ((c->in = malloc(n)) == NULL) {
            c->in_size = c->in_room = 0;
            count_kept(c, 0, 0);
            fail(c);
            return;
        }
        c->in_room = n;
    }
    if (at != c->in) memmove(c->in, at, n);     /* a frame that waits stays in place: it is tried each ms */
    c->in_size = n;
    if (c->in_room > 2 * READ_SIZE && c->in_room / 4 > n) {        /* a large frame has gone */
        unsigned char *smaller = realloc(c->in, n);
        if (smaller) {
            c->in = smaller;
            c->in_room = n;
        }
    }
    int waits = c->stalled || c->held_up;       /* whose frames are whole */
    count_kept(c, waits ? 0 : n, waits ? n : 0);
    if (net->buffered > net->limits.buffered && c->counted) close_unfinished(net);
    if (net->waiting > net->limits.waiting && c->waiting) close_waiting(net);
}

/* A large frame that is passed on may take the buffer with it: see queue_pass. */
static void serve_kept(rmq_connection *c) {
    unsigned char *at = c->in;
    size_t n = c->in_size, done = serve_all(c, at, n);
    if (!c->dead) keep(c, at + done, n - done);
}

/* Where to read to: the chunk, or behind the unfinished frame that is there, as much as it lacks and little more. */
static unsigned char *room_to_read(rmq_connection *c, size_t *room) {
    *room = READ_SIZE;
    if (c->in_size == 0) return c->net->chunk;
    size_t wanted = c->in_size + READ_SIZE;
    int32_t size = rmq_frame_size(c->in, c->in_size);
    if (size > 0 && (size_t)size > c->in_size && (size_t)size < wanted) wanted = (size_t)size;
    if (c->in_room < wanted) {
        size_t most = size > 0 && (size_t)size > wanted ? (size_t)size : wanted;
        size_t next = 2 * c->in_room < wanted ? wanted : 2 * c->in_room < most ? 2 * c->in_room : most;
        unsigned char *in = realloc(c->in, next);
        if (in == NULL) return NULL;
        c->in = in;
        c->in_room = next;
    }
    *room = c->in_room - c->in_size;
    size_t turn = c->net->busy > 1 ? BESIDE_SIZE : TURN_SIZE;
    if (*room > turn) *room = turn;
    return c->in + c->in_size;
}

/* The first byte tells a TLS handshake from a frame, which begins with a length below 16 MiB. A peer of the former kind leaves
 * with all its bytes: the socket goes on under another descriptor. Returns whether frames are to be read. */
static int begins_with_frame(rmq_connection *c) {
    rmq_net *net = c->net;
    unsigned char first;
    if (c->begun || net->tls == RMQ_TLS_OFF || recv(c->fd, &first, 1, MSG_PEEK) != 1) return 1;
    c->begun = 1;
    if (first == TLS_HANDSHAKE) {
        int fd = fcntl(c->fd, F_DUPFD_CLOEXEC, 0);
        if (fd >= 0) epoll_ctl(net->epoll, EPOLL_CTL_DEL, c->fd, NULL);     /* the close would leave it watched */
        if (fd >= 0 && queue_give(c, fd) < 0) close(fd);
    } else if (net->tls != RMQ_TLS_ONLY) {
        return 1;
    }
    fail(c);
    return 0;
}

void connection_readable(rmq_connection *c) {
    rmq_net *net = c->net;
    size_t room;
    if (c->dead || c->stalled || c->ending || rmq_connection_slow(c) || !begins_with_frame(c)) return;
    unsigned char *to = c->refused ? net->chunk : room_to_read(c, &room);
    if (c->refused) room = c->refused < BESIDE_SIZE ? c->refused : BESIDE_SIZE;
    ssize_t n = to ? recv(c->fd, to, room, 0) : -1;
    if (n < 0 && to && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    if (n <= 0) {
        fail(c);
        return;
    }
    c->heard = net->now;
    rmq_count(&net->counts.bytes_in, n);
    if (c->refused) {
        c->refused -= (size_t)n;
    } else if (to == net->chunk) {
        size_t done = serve_all(c, to, (size_t)n);
        if (!c->dead) keep(c, to + done, (size_t)n - done);
    } else {
        c->in_size += (size_t)n;
        serve_kept(c);
    }
}

void connection_retry(rmq_connection *c) {
    if (c->dead || c->ending || c->in_size == 0) return;
    c->net->stalled -= c->stalled;
    c->stalled = 0;
    serve_kept(c);
    connection_mark(c);
}
