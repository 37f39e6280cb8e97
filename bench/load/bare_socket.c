/* What loopback costs without any store: a round trip of a record and its acknowledgement, and a copy of a file.
 *
 *     bare_socket trip ROUNDS BYTES
 *     bare_socket copy FROM TO MIB      the first MIB of FROM; TO "-": the receiver reads and stores nothing
 *
 * `trip`: BYTES there, 8 bytes back, one at a time, between two processes that both wait in epoll, as the two sides of
 * replication do; prints {"p50_us":..,"p99_us":..}. `copy`: FROM is mapped and sent, TO is a new file; prints
 * {"mib":..,"seconds":..,"mib_per_s":..}. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net_peer.h"

enum { RECEIVE = 1 << 20 };

static int watched(int fd) {
    int epoll = epoll_create1(0);
    struct epoll_event e = {.events = EPOLLIN};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) < 0) die("epoll_ctl");
    return epoll;
}

/* False at the end of the stream. */
static int exactly(int epoll, int fd, unsigned char *to, size_t n) {
    struct epoll_event e;
    for (size_t come = 0; come < n;) {
        if (epoll_wait(epoll, &e, 1, -1) < 0) die("epoll_wait");
        ssize_t more = recv(fd, to + come, n - come, 0);
        if (more < 0) die("recv");
        if (more == 0) return 0;
        come += (size_t)more;
    }
    return 1;
}

static int trip(int rounds, size_t bytes) {
    int ends[2];
    over_loopback(ends);
    unsigned char *buffer = calloc(1, bytes > 8 ? bytes : 8);
    if (fork() == 0) {
        close(ends[0]);
        int epoll = watched(ends[1]);
        while (exactly(epoll, ends[1], buffer, bytes))
            if (send(ends[1], buffer, 8, MSG_NOSIGNAL) != 8) die("send");
        _exit(0);
    }
    close(ends[1]);
    int epoll = watched(ends[0]);
    int64_t *times = calloc((size_t)rounds, sizeof *times);
    for (int i = -rounds / 10; i < rounds; i++) {
        int64_t begun = now_ns();
        if (send(ends[0], buffer, bytes, MSG_NOSIGNAL) != (ssize_t)bytes) die("send");
        if (!exactly(epoll, ends[0], buffer, 8)) die("the peer ended");
        if (i >= 0) times[i] = now_ns() - begun;
    }
    close(ends[0]);
    wait(NULL);
    qsort(times, (size_t)rounds, sizeof *times, ascending);
    printf("{\"p50_us\":%.2f,\"p99_us\":%.2f}\n", (double)times[rounds / 2] / 1e3, (double)times[rounds * 99L / 100] / 1e3);
    return 0;
}

static void receive(int fd, const char *to, size_t size) {
    unsigned char *buffer = malloc(RECEIVE);
    int file = strcmp(to, "-") == 0 ? -1 : open(to, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    for (size_t come = 0; come < size;) {
        ssize_t n = recv(fd, buffer, size - come < RECEIVE ? size - come : RECEIVE, 0);
        if (n <= 0) die("recv");
        if (file >= 0 && write(file, buffer, (size_t)n) != n) die("write");
        come += (size_t)n;
    }
    if (send(fd, "", 1, MSG_NOSIGNAL) != 1) die("send");
    _exit(0);
}

static int copy(const char *from, const char *to, size_t size) {
    struct stat about;
    int file = open(from, O_RDONLY), ends[2];
    if (file < 0 || fstat(file, &about) < 0 || (size_t)about.st_size < size) die(from);
    unsigned char *at = mmap(NULL, size, PROT_READ, MAP_SHARED | MAP_POPULATE, file, 0), done;
    if (at == MAP_FAILED) die("mmap");
    over_loopback(ends);
    int64_t begun = now_ns();
    if (fork() == 0) receive(ends[1], to, size);
    for (size_t gone = 0; gone < size;) {
        ssize_t n = send(ends[0], at + gone, size - gone < RECEIVE ? size - gone : RECEIVE, MSG_NOSIGNAL);
        if (n < 0) die("send");
        gone += (size_t)n;
    }
    if (recv(ends[0], &done, 1, 0) != 1) die("the receiver ended");
    double seconds = (double)(now_ns() - begun) / 1e9, mib = (double)size / (1 << 20);
    wait(NULL);
    printf("{\"mib\":%.1f,\"seconds\":%.4f,\"mib_per_s\":%.1f}\n", mib, seconds, mib / seconds);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "trip") == 0) return trip(atoi(argv[2]), (size_t)atoi(argv[3]));
    if (argc == 5 && strcmp(argv[1], "copy") == 0) return copy(argv[2], argv[3], (size_t)atoi(argv[4]) << 20);
    return fprintf(stderr, "see the head of bare_socket.c\n"), 2;
}
