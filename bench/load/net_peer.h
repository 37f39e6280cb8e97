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

/* Of a header in JSON; -1: it has no such name. */
static inline int64_t number_behind(const char *text, size_t n, const char *name) {
    const char *at = memmem(text, n, name, strlen(name));
    return at ? strtoll(at + strlen(name), NULL, 10) : -1;
}
