/* The network thread under real sockets: peers send whole, cut and mutated frames in pieces of any size, read or do not, and
 * go when they like. RMQ_NET_STEPS says how many steps they take. A peer that does no harm is answered all the time, and at the
 * end nothing is left: the sanitizers see what the thread reads, and what it does not free. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include "check.h"
#include "frames.h"
#include "rmq_atomic.h"
#include "rmq_net.h"

enum { PEERS = 6, GOOD_EVERY = 8, BODY = 60000, PIECES = 40 };

static rmq_net *net;
static int port;
static unsigned char body[BODY];
static int64_t opened, closed, frames;      /* the taker's */

/* ---- the server: a service that answers in every way, by a sequence of its own */

static uint32_t turn;
static uint32_t next_turn(void) { return (turn = turn * 1664525u + 1013904223u) >> 16; }

static rmq_done answered(rmq_connection *c, const rmq_frame *f, int32_t size) {
    unsigned char head[RMQ_ANSWER_ROOM];
    rmq_answer a;
    rmq_answer_begin(&a, head, f->serialize, 0, f->opaque, 409, NULL);
    int32_t n = rmq_answer_end(&a, size);
    if (size > 0) {
        struct iovec parts[2 + PIECES] = {{0}, {head, (size_t)n}};
        int count = 2, pieces = 1 + (int)(next_turn() % PIECES);
        for (int i = 0; i < pieces; i++)
            parts[count++] = (struct iovec){body + i, (size_t)(i < pieces - 1 ? size / pieces : size - size / pieces * i)};
        rmq_connection_parts(c, parts, count);
        return RMQ_DONE;
    }
    unsigned char *to = rmq_connection_room(c, (size_t)n);
    if (to) {
        memcpy(to, head, (size_t)n);
        rmq_connection_filled(c, (size_t)n);
    }
    return RMQ_DONE;
}

static rmq_done request(void *ctx, rmq_connection *c, const rmq_frame *f) {
    (void)ctx;
    if (f->code == 34) return answered(c, f, 0);        /* what the good peer asks */
    switch (next_turn() % 8) {
    case 0: case 1: return RMQ_PASS;
    case 2: return rmq_connection_waited(c) ? RMQ_DONE : RMQ_LATER;
    case 3: return next_turn() % 16 ? RMQ_DONE : RMQ_BAD;
    case 4: case 5: return rmq_connection_slow(c) ? RMQ_DONE : answered(c, f, (int32_t)(next_turn() % BODY));
    case 6:
        if (next_turn() % 64 == 0) rmq_net_ask(net);
        return RMQ_DONE;
    default: return answered(c, f, 0);
    }
}

static void *take(void *arg) {
    (void)arg;
    for (uint32_t n = 0;; n++) {
        int last = rmq_net_stopped(net);
        rmq_item *item = rmq_net_take(net, -1);
        if (item == NULL && last) return NULL;
        if (item == NULL) continue;
        opened += item->kind == RMQ_OPENED;
        closed += item->kind == RMQ_CLOSED;
        frames += item->kind == RMQ_FRAME;
        if (item->kind == RMQ_FRAME && n % 3 == 0)
            CHECK(rmq_net_send(net, item->connection, item->data, (size_t)item->size) == 0);
        if (item->kind == RMQ_FRAME && n % 101 == 0) CHECK(rmq_net_drop(net, item->connection) == 0);
        rmq_lane *lane = item->lane;
        rmq_item_free(item);
        rmq_net_served(net, lane);
    }
}

/* ---- peers */

static int connected(void) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
    return fd;
}

/* A frame of a client, mostly mutated, and cut where it likes. */
static void send_some(int fd) {
    unsigned char frame[MOST];
    size_t size = (size_t)json_frame(frame, headers[random32() % HEADERS], (int32_t)(random32() % 200));
    if (random32() % 4 == 0) size = mutated(frame, size);
    if (random32() % 16 == 0) size = random32() % (size + 1);
    for (size_t at = 0, n; at < size; at += n) {
        n = 1 + random32() % (random32() % 2 ? size : 16);
        if (n > size - at) n = size - at;
        if (send(fd, frame + at, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return;      /* full, or closed by the other side */
    }
}

static int gone(int fd) {
    static unsigned char sink[1 << 16];
    ssize_t n = recv(fd, sink, 1 + random32() % sizeof sink, MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN);
}

static void end(int *fd) {
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    if (random32() % 2) setsockopt(*fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);      /* a reset */
    close(*fd);
    *fd = -1;
}

static void step(int *fd) {
    if (*fd < 0) *fd = connected();
    switch (random32() % 16) {
    case 0: end(fd); break;
    case 1: shutdown(*fd, SHUT_WR); break;
    case 2: case 3: case 4: case 5:
        if (gone(*fd)) end(fd);
        break;
    default: send_some(*fd);
    }
}

static void good_is_answered(int fd) {
    unsigned char frame[MOST], head[4];
    int32_t size = json_frame(frame, headers[2], 0);
    CHECK(send(fd, frame, (size_t)size, MSG_NOSIGNAL) == size);
    CHECK(recv(fd, head, 4, MSG_WAITALL) == 4);
    size = rmq_get32(head);
    CHECK(size > 4 && size < MOST && recv(fd, frame, (size_t)size, MSG_WAITALL) == size);
}

static int listening(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&at, size) == 0 && listen(fd, 64) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&at, &size) == 0);
    port = ntohs(at.sin_port);
    return fd;
}

/* What others send while the network thread does not come to it: it does not run yet. */
static void outside_has_a_bound(int64_t limit) {
    int64_t sent = 0;
    int rc;
    for (rc = 0; rc == 0 && sent <= limit; sent += rc == 0 ? BODY : 0) rc = rmq_net_send(net, 7, body, BODY);
    CHECK(rc == 1 && sent <= limit && sent > limit - BODY);
}

int main(void) {
    const char *asked = getenv("RMQ_NET_STEPS");
    long steps = asked ? atol(asked) : 4000;
    rmq_net_limits limits = {.connections = 64, .buffered = 1 << 18, .waiting = 1 << 22, .unread = 1 << 15,
                             .unread_most = 1 << 18, .unread_all = 1 << 20, .passed = 32, .passed_bytes = 1 << 16,
                             .passed_of_one = 8,
                             .idle_ns = INT64_C(3600000000000)};
    rmq_service service = {.request = request, .fds = {-1, -1}};
    int fds[PEERS];
    pthread_t taker;
    limit_seconds(1800);
    CHECK(rmq_net_new(&limits, &net) == 0 && rmq_net_use(net, &service) == 0 && rmq_net_listen(net, listening()) == 0);
    outside_has_a_bound(limits.unread_all);
    CHECK(rmq_net_start(net) == 0 && pthread_create(&taker, NULL, take, NULL) == 0);
    int good = connected();
    for (int i = 0; i < PEERS; i++) fds[i] = -1;
    for (long n = 0; n < steps; n++) {
        step(&fds[random32() % PEERS]);
        if (n % GOOD_EVERY == 0) good_is_answered(good);
    }
    for (int i = 0; i < PEERS; i++)
        if (fds[i] >= 0) end(&fds[i]);
    while (rmq_load(&rmq_net_counts_of(net)->connections) > 1) good_is_answered(good);      /* a round each */
    const rmq_net_counts *counts = rmq_net_counts_of(net);
    CHECK(rmq_load(&counts->bad) > 0 && rmq_load(&counts->requests) > steps / 8 && rmq_load(&counts->refused) == 0);
    CHECK(rmq_net_send(net, 7, body, BODY) == 0);
    close(good);
    rmq_net_stop(net);
    CHECK(pthread_join(taker, NULL) == 0);
    CHECK(opened == closed && opened > 0 && frames > 0);
    rmq_net_free(net);
    return 0;
}
