/* What loopback carries for net_load.c: a server that stores nothing and looks nothing up. One thread answers each frame with a
 * small frame, a pull (code 11) with BATCH pieces of BODY_BYTES behind it, which lie apart
 * as in a log that so many queues share.
 *
 *     bare_answer HOST PORT BODY_BYTES BATCH QUEUES
 *
 * Says "listening" once it does, and ends with its input. It trusts its peer, which is net_load.c. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "net_peer.h"

enum { IN = 1 << 20, OUT = 1 << 22, BLOCK = 64 << 20, HEAD = 512 };

typedef struct peer {
    int fd, gone;
    unsigned char *in, *out; /* out: answers, [from, size) */
    size_t come, from, size;
} peer;

static unsigned char *block;
static size_t body, batch, queues, at_in_block;

static void answer(peer *p, const char *header, size_t n) {
    int pull = memmem(header, n, "\"code\":11,", 10) != NULL;
    size_t size = pull ? batch * body : 0;
    if (p->size + HEAD + size > OUT) die("the peer does not read");
    unsigned char *to = p->out + p->size;
    long next = (long)(number_behind(header, n, "\"queueOffset\":\"") + (int64_t)batch);
    int text = sprintf((char *)to + 8,
                       "{\"code\":0,\"extFields\":{\"nextBeginOffset\":\"%ld\",\"minOffset\":\"0\",\"maxOffset\":\"%ld\"},"
                       "\"flag\":1,\"language\":\"OTHER\",\"opaque\":%ld,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":0}",
                       next, next, (long)number_behind(header, n, "\"opaque\":"));
    uint32_t word[2] = {htonl((uint32_t)(4 + text + (int)size)), htonl((uint32_t)text)};
    memcpy(to, word, 8);
    p->size += (size_t)text + 8;
    for (size_t i = 0; pull && i < batch; i++) {
        at_in_block += queues * body;
        if (at_in_block + body > BLOCK) at_in_block = (at_in_block + body) % (queues * body);
        memcpy(p->out + p->size, block + at_in_block, body);
        p->size += body;
    }
}

static void write_on(peer *p) {
    while (p->from < p->size) {
        ssize_t n = send(p->fd, p->out + p->from, p->size - p->from, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) return;
        if (n < 0) return (void)(p->gone = 1);
        p->from += (size_t)n;
    }
    p->from = p->size = 0;
}

/* 0: the peer has gone. A whole window of requests fits: what comes later is an event of its own. */
static int readable(peer *p) {
    ssize_t n = recv(p->fd, p->in + p->come, IN - p->come, 0);
    if (n < 0 && errno == EAGAIN) return 1;
    if (n <= 0 || p->gone) return 0;
    p->come += (size_t)n;
    size_t done = 0;
    while (p->come - done >= 8) {
        uint32_t word[2];
        memcpy(word, p->in + done, 8);
        size_t size = 4 + (size_t)ntohl(word[0]);
        if (p->come - done < size) break;
        answer(p, (char *)p->in + done + 8, ntohl(word[1]) & 0xFFFFFF);
        done += size;
    }
    memmove(p->in, p->in + done, p->come - done);
    p->come -= done;
    write_on(p); /* what came together is answered together */
    return !p->gone;
}

static int listening(const char *host, const char *port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    inet_pton(AF_INET, host, &at.sin_addr);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) < 0 || listen(fd, 128) < 0) die("bind");
    return fd;
}

static void add(int epoll, int fd, void *of) {
    struct epoll_event e = {.events = EPOLLIN | (of ? EPOLLOUT | EPOLLET : 0), .data.ptr = of};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) < 0) die("epoll_ctl");
}

int main(int argc, char **argv) {
    if (argc < 6) return fprintf(stderr, "see the head of bare_answer.c\n"), 2;
    body = (size_t)atoll(argv[3]);
    batch = (size_t)atoll(argv[4]);
    queues = (size_t)atoll(argv[5]);
    block = malloc(BLOCK);
    memset(block, 'x', BLOCK);
    int server = listening(argv[1], argv[2]), epoll = epoll_create1(0);
    peer input = {.fd = 0};
    add(epoll, server, NULL);
    add(epoll, 0, &input);
    puts("listening");
    fflush(stdout);
    for (struct epoll_event events[64];;) {
        int n = epoll_wait(epoll, events, 64, -1);
        for (int i = 0; i < n; i++) {
            peer *p = events[i].data.ptr;
            if (p == &input) return 0;
            if (!p) {
                int on = 1, fd = accept4(server, NULL, NULL, SOCK_NONBLOCK);
                if (fd < 0) continue;
                setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
                p = malloc(sizeof *p);
                *p = (peer){.fd = fd, .in = malloc(IN), .out = malloc(OUT)};
                add(epoll, fd, p);
                continue;
            }
            write_on(p);
            if (!readable(p)) close(p->fd), free(p->in), free(p->out), free(p);
        }
    }
}
