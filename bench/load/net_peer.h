/* What the load generators for a broker's network share, and the bare server; included by each. Not thread-safe. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

static inline int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static inline int connected(const char *host, const char *port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    inet_pton(AF_INET, host, &to.sin_addr);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0) die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

/* Two ends of a TCP connection over loopback: ends[0] here, ends[1] for the child. */
static inline void over_loopback(int ends[2]) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&at, size) < 0 || listen(listener, 1) < 0) die("listen");
    getsockname(listener, (struct sockaddr *)&at, &size);
    char port[16];
    snprintf(port, sizeof port, "%d", ntohs(at.sin_port));
    ends[0] = connected("127.0.0.1", port);
    ends[1] = accept(listener, NULL, NULL);
    int on = 1;
    setsockopt(ends[1], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    close(listener);
}

/* Of int64_t, for qsort. */
static inline int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Of a header in JSON; -1: it has no such name. */
static inline int64_t number_behind(const char *text, size_t n, const char *name) {
    const char *at = memmem(text, n, name, strlen(name));
    return at ? strtoll(at + strlen(name), NULL, 10) : -1;
}
