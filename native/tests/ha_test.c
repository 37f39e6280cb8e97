/* The master's HA thread over a log in memory, its slaves as plain sockets; and a slave's connection to a name that nobody
 * answers for. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/socket.h>
#include "check.h"
#include "ha.h"
#include "rmq_bytes.h"
#include "rmq_ha_socket.h"

enum { FILE_SIZE = 1 << 16, LOG_SIZE = 8 * FILE_SIZE, SLAVES = 2, ROUNDS = 400 };

static unsigned char bytes[LOG_SIZE];
static int64_t log_end, log_begin, acked_calls;

static int64_t end_of(void *ctx) { (void)ctx; return rmq_load(&log_end); }
static int64_t begin_of(void *ctx) { (void)ctx; return rmq_load(&log_begin); }
static int64_t last_of(void *ctx) { (void)ctx; return rmq_load(&log_end) / FILE_SIZE * FILE_SIZE; }
static const unsigned char *hold(void *ctx, int64_t offset, int64_t *n, void **held) {
    (void)ctx;
    *n = 0;
    if (offset < rmq_load(&log_begin)) return NULL;
    *held = bytes;
    *n = FILE_SIZE - offset % FILE_SIZE;
    return bytes + offset;
}
static void release(void *ctx, void *held) { (void)ctx; CHECK(held == bytes); }
static void acked(void *ctx) { (void)ctx; rmq_add(&acked_calls, 1); }

static const rmq_ha_log LOG = {NULL, end_of, begin_of, last_of, hold, release, acked};

static rmq_ha *master(int64_t silence_ns, uint16_t *port) {
    rmq_ha_limits limits = {.heartbeat_ns = SECOND / 20, .silence_ns = silence_ns, .frame_bytes = 3000,
                            .behind_bytes = LOG_SIZE};
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    rmq_ha *ha = NULL;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(bind(listener, (struct sockaddr *)&at, size) == 0 && listen(listener, 64) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&at, &size) == 0);
    *port = ntohs(at.sin_port);
    CHECK(rmq_ha_new(&LOG, &limits, listener, &ha) == 0);
    CHECK(rmq_ha_start(ha) == 0);
    return ha;
}

static int slave(uint16_t port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(fd, (struct sockaddr *)&at, sizeof at) == 0);
    return fd;
}

static void report(int fd, int64_t offset) {
    unsigned char out[8];
    rmq_put64(out, offset);
    CHECK(send(fd, out, 8, MSG_NOSIGNAL) == 8);
}

static int exactly(int fd, void *to, size_t n) {
    return n == 0 || recv(fd, to, n, MSG_WAITALL) == (ssize_t)n;
}

/* One frame: its size, which is compared with the log; -1: the connection has ended. */
static int64_t frame(int fd, int64_t at) {
    unsigned char head[12], body[3000];
    if (!exactly(fd, head, 12)) return -1;
    int32_t size = rmq_get32(head + 8);
    CHECK(rmq_get64(head) == at && size >= 0 && size <= 3000);
    CHECK(at / FILE_SIZE == (at + size - (size > 0)) / FILE_SIZE);
    if (!exactly(fd, body, (size_t)size)) return -1;
    CHECK(memcmp(body, bytes + at, (size_t)size) == 0);
    return size;
}

typedef struct follower {
    uint16_t port;
    pthread_t thread;
    int64_t at;
} follower;

static void *follow(void *arg) {
    follower *f = arg;
    int fd = slave(f->port);
    report(fd, f->at = 1);
    while (f->at < LOG_SIZE - 1) {
        int64_t size = frame(fd, f->at);
        CHECK(size >= 0);
        f->at += size;
        report(fd, f->at);
    }
    while (frame(fd, f->at) == 0) {}        /* until the master stops */
    close(fd);
    return NULL;
}

/* A log that grows, two slaves, threads that wait for one and for both, and one that looks. */
static void *wait_for(void *arg) {
    rmq_ha *ha = arg;
    for (int64_t at = 1; at < LOG_SIZE - 1; at += (LOG_SIZE - 2) / 50) {
        for (int acks = 1; acks <= SLAVES; acks++) {
            CHECK(rmq_ha_wait(ha, at, acks, 60 * SECOND) == 0);
            CHECK(rmq_ha_acked(ha, acks) >= at);
        }
    }
    return NULL;
}

static void under_load(void) {
    uint16_t port;
    rmq_publish(&log_end, 1);
    rmq_ha *ha = master(10 * SECOND, &port);
    follower all[SLAVES];
    pthread_t waiter;
    rmq_ha_replica found[RMQ_HA_SLAVES];
    for (int i = 0; i < LOG_SIZE; i++) bytes[i] = (unsigned char)(i * 31 + i / 251);
    for (int i = 0; i < SLAVES; i++) {
        all[i].port = port;
        CHECK(rmq_thread_start(&all[i].thread, follow, &all[i], "slave") == 0);
    }
    CHECK(rmq_thread_start(&waiter, wait_for, ha, "waiter") == 0);
    for (int i = 1; i <= ROUNDS; i++) {
        rmq_publish(&log_end, 1 + (LOG_SIZE - 2) * (int64_t)i / ROUNDS);
        rmq_ha_wake(ha);
        CHECK(rmq_ha_replicas(ha, found, RMQ_HA_SLAVES) <= SLAVES);
        rmq_ha_usable(ha, i);
        CHECK(rmq_ha_in_sync(ha, i) <= SLAVES + 1);
    }
    CHECK(rmq_thread_join(&waiter) == 0);
    CHECK(rmq_ha_wait(ha, LOG_SIZE - 1, SLAVES, 60 * SECOND) == 0);
    CHECK(rmq_ha_wait(ha, LOG_SIZE, 1, 1) == -ETIMEDOUT);
    CHECK(rmq_load(&acked_calls) > 0);
    rmq_ha_stop(ha);
    CHECK(rmq_ha_wait(ha, LOG_SIZE, 1, SECOND) == -ECANCELED);
    for (int i = 0; i < SLAVES; i++) CHECK(rmq_thread_join(&all[i].thread) == 0);
    rmq_ha_free(ha);
}

/* A thread that found the master asleep may signal it when it has ended: nobody else has that descriptor by then. */
static void a_late_wake(void) {
    uint16_t port;
    uint64_t count;
    int mine[8];
    rmq_ha *ha = master(10 * SECOND, &port);
    rmq_ha_stop(ha);
    for (int i = 0; i < 8; i++) CHECK((mine[i] = rmq_ha_wake_new()) >= 0);
    rmq_publish32(&ha->asleep, 1);
    rmq_publish(&ha->reach, -1);        /* as where a slave lacks something */
    rmq_ha_wake(ha);
    for (int i = 0; i < 8; i++) {
        CHECK(read(mine[i], &count, 8) < 0 && errno == EAGAIN);
        close(mine[i]);
    }
    rmq_ha_free(ha);
}

static int ended(int fd) {
    char some[4096];
    ssize_t n;
    while ((n = recv(fd, some, sizeof some, 0)) > 0) {}
    close(fd);
    return 1;
}

/* Threads that put and wait for one slave or both, as synchronous puts do, beside one that only puts:
 * whoever reads what the slaves say, nobody's acknowledgement is lost, and nobody else is needed to send. */
enum { PUTTERS = 4, PUTS = 1500, STEP = 16 };

static int64_t next_put(void) { return rmq_add(&log_end, STEP); }

static void *put_and_wait(void *arg) {
    rmq_ha *ha = arg;
    for (int i = 0; i < PUTS; i++) {
        int64_t end = next_put();
        rmq_ha_push(ha, 1);
        CHECK(rmq_ha_wait(ha, end, 1 + i % SLAVES, 60 * SECOND) == 0);
        CHECK(rmq_ha_acked(ha, 1 + i % SLAVES) >= end);
    }
    return NULL;
}

static void *put_only(void *arg) {
    for (int i = 0; i < PUTS; i++) {
        next_put();
        if (i % 2) rmq_ha_wake(arg); else rmq_ha_push(arg, 0);
        if (i % 100 == 0) sched_yield();
    }
    return NULL;
}

static void waiters_that_lead(void) {
    uint16_t port;
    rmq_publish(&log_end, 1);
    rmq_ha *ha = master(10 * SECOND, &port);
    follower all[SLAVES];
    pthread_t putters[PUTTERS + 1];
    for (int i = 0; i < SLAVES; i++) {
        all[i].port = port;
        CHECK(rmq_thread_start(&all[i].thread, follow, &all[i], "slave") == 0);
    }
    for (int i = 0; i <= PUTTERS; i++) {
        CHECK(rmq_thread_start(&putters[i], i < PUTTERS ? put_and_wait : put_only, ha, "putter") == 0);
    }
    for (int i = 0; i <= PUTTERS; i++) CHECK(rmq_thread_join(&putters[i]) == 0);
    rmq_publish(&log_end, LOG_SIZE - 1);        /* where the followers end */
    rmq_ha_push(ha, 0);
    CHECK(rmq_ha_wait(ha, LOG_SIZE - 1, SLAVES, 60 * SECOND) == 0);
    rmq_ha_stop(ha);
    for (int i = 0; i < SLAVES; i++) CHECK(rmq_thread_join(&all[i].thread) == 0);
    rmq_ha_free(ha);
}

static int64_t wait_rc;

static void *wait_long(void *arg) {
    rmq_publish(&wait_rc, rmq_ha_wait(arg, LOG_SIZE, 1, 600 * SECOND));
    return NULL;
}

/* One slave says the same again and again, more than a turn reads, and closes: all of it is heard, and the end too. A stop lets
 * out whoever leads, and the others. */
static void much_at_once(void) {
    enum { WORDS = 40000 };
    static unsigned char out[8 * WORDS];
    uint16_t port;
    pthread_t waiters[3];
    rmq_publish(&log_end, 1000);
    rmq_ha *ha = master(60 * SECOND, &port);
    int fd = slave(port);
    report(fd, 100);
    for (int64_t at = 100; at < 1000;) at += frame(fd, at);
    for (int i = 0; i < 3; i++) CHECK(rmq_thread_start(&waiters[i], wait_long, ha, "waiter") == 0);
    for (int i = 0; i < WORDS; i++) rmq_put64(out + 8 * i, 100 + 900 * (int64_t)(i + 1) / WORDS);
    CHECK(send(fd, out, sizeof out, MSG_NOSIGNAL) == (ssize_t)sizeof out);
    CHECK(rmq_ha_wait(ha, 1000, 1, 60 * SECOND) == 0);
    report(fd, 1000);
    CHECK(shutdown(fd, SHUT_WR) == 0 && ended(fd));
    rmq_ha_replica found[RMQ_HA_SLAVES];
    while (rmq_ha_replicas(ha, found, RMQ_HA_SLAVES) > 0) sched_yield();
    rmq_ha_stop(ha);
    for (int i = 0; i < 3; i++) {
        CHECK(rmq_thread_join(&waiters[i]) == 0);
        CHECK(rmq_load(&wait_rc) == -ECANCELED);
    }
    rmq_ha_free(ha);
}

/* Reports that no slave sends end the connection; so does silence, and a place that cleaning has deleted. */
static void peers_that_are_none(void) {
    static const int64_t first[] = {-1, INT64_MIN, INT64_MAX, LOG_SIZE + 1};
    uint16_t port;
    rmq_publish(&log_end, LOG_SIZE);
    rmq_ha *ha = master(SECOND / 5, &port);
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        int fd = slave(port);
        report(fd, first[i]);
        CHECK(ended(fd));
    }
    int beyond = slave(port), silent = slave(port);
    report(beyond, LOG_SIZE - 10);
    report(beyond, LOG_SIZE + 10);
    CHECK(ended(beyond) && ended(silent));
    rmq_publish(&log_begin, FILE_SIZE);
    int gone = slave(port);
    report(gone, 10);
    CHECK(ended(gone));
    rmq_publish(&log_begin, 0);
    rmq_ha_note note;
    int notes = 0;
    while (rmq_ha_heard(rmq_ha_notes_of(ha), &note)) notes++;
    CHECK(notes >= 7);
    rmq_ha_free(ha);
}

/* ---- names. This look-up takes until it is let go: numbers are answered by the real one. */

static sem_t asked, answer;

int getaddrinfo(const char *host, const char *port, const struct addrinfo *wanted, struct addrinfo **found) {
    static const struct sockaddr_in nobody = {.sin_family = AF_INET};
    struct addrinfo *a;
    if (wanted->ai_flags & AI_NUMERICHOST) return EAI_NONAME;
    (void)host, (void)port;
    sem_post(&asked);
    while (sem_wait(&answer) < 0) {}
    a = calloc(1, sizeof *a + sizeof nobody);
    if (a == NULL) return EAI_MEMORY;
    a->ai_family = AF_INET;
    a->ai_socktype = SOCK_STREAM;
    a->ai_addrlen = sizeof nobody;
    a->ai_addr = (struct sockaddr *)memcpy(a + 1, &nobody, sizeof nobody);      /* port 0: refused */
    *found = a;
    return 0;
}
void freeaddrinfo(struct addrinfo *a) { free(a); }

static void a_name_that_nobody_answers_for(void) {
    rmq_ha_peer p = {.fd = -1};
    int wake = rmq_ha_wake_new();
    sem_init(&asked, 0, 0);
    sem_init(&answer, 0, 0);
    CHECK(rmq_ha_connect(&p, "master", "1", wake, 1) == -ETIMEDOUT);
    CHECK(rmq_ha_connect(&p, "master", "1", wake, 1) == -ETIMEDOUT);        /* waits for the same look-up */
    sem_wait(&asked);
    CHECK(sem_trywait(&asked) < 0);
    sem_post(&answer);
    CHECK(rmq_ha_connect(&p, "master", "1", wake, 60000) == -ECONNREFUSED);
    CHECK(p.fd == -1 && p.lookup == NULL);
    rmq_ha_wake_signal(wake);
    CHECK(rmq_ha_connect(&p, "master", "1", wake, 60000) == -ECANCELED);
    rmq_ha_leave(&p);               /* the look-up is still under way */
    CHECK(p.lookup == NULL);
    sem_wait(&asked);
    sem_post(&answer);
    rmq_ha_close(wake);
    struct timespec moment = {.tv_nsec = 50000000};
    nanosleep(&moment, NULL);       /* for the leak check alone: the thread frees what is left */
}

int main(void) {
    under_load();
    a_late_wake();
    waiters_that_lead();
    much_at_once();
    peers_that_are_none();
    a_name_that_nobody_answers_for();
    return 0;
}
