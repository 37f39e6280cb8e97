/* What a master and a slave cost without any store: records written to a file, sent over loopback, written to another file,
 * and acknowledged. Nothing is encoded, checked or dispatched.
 *
 *     bare_pair window DIR SECONDS IN_FLIGHT WORK_NS    a record is under way until the slave has acknowledged it; before each,
 *                                                       the producer computes for WORK_NS, as a caller in Python does
 *     bare_pair lag DIR SECONDS RATE 0                  until a thread of the slave's process has read it, from its due time
 *     bare_pair behind DIR SECONDS RATE 0               how long the first record that the slave lacks has been due, as a
 *                                                       thread finds that looks every LOOK_US
 *
 * The master has a thread that makes records, and spins until one is due; one that writes and sends what has gathered, as soon
 * as the slave has acknowledged nearly all that went before; and one for acknowledgements. The slave has one that receives,
 * writes and acknowledges, and one that reads, or looks. Both sync their file twice a second. Who waits sleeps on a futex.
 * Prints {"per_s":..,"p50_us":..,"p99_us":..,"p999_us":..,"cpu_us":..}, the last for one record, of both sides. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net_peer.h"

enum { RING_RECORDS = 1 << 16, RECEIVE = 1 << 20, SYNC_US = 500000, LOOK_US = 500 };
typedef enum Mode { WINDOW, LAG, BEHIND, MODES } Mode;
enum { RECORD = 1116 /* one of 1 KiB in a log */, UNDER_WAY = 64 /* records at which more is sent */ };
static const double PER_S = 7e5;        /* room for a window's records, for each second: it ends early where they are more */

typedef struct Gate {
    _Atomic uint32_t word, asleep;
} Gate;

/* Positions count records. Each is in a cache line of its own, and one thread writes it. */
typedef struct Shared {
    _Alignas(64) _Atomic int64_t made;
    _Alignas(64) _Atomic int64_t acknowledged;
    _Alignas(64) _Atomic int64_t stored;
    _Alignas(64) Gate to_send;
    _Alignas(64) Gate producer;
    _Alignas(64) Gate sender;
    _Alignas(64) Gate reader;
    _Atomic int over;
    int64_t begun, looks;
} Shared;

static Shared *s;
static unsigned char *ring;
static int master_file, slave_file, wire;
static int64_t most, *times;
static double rate;

static int64_t due_ns(int64_t n) { return s->begun + (int64_t)((double)n * 1e9 / rate); }

static void wake(Gate *g) {
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load(&g->asleep) == 0) return;
    atomic_fetch_add(&g->word, 1);
    syscall(SYS_futex, &g->word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* Until `position` is behind `than`. */
static int64_t beyond(Gate *g, _Atomic int64_t *position, int64_t than) {
    for (int64_t now; (now = atomic_load(position)) <= than;) {
        uint32_t word = atomic_load(&g->word);
        atomic_store(&g->asleep, 1);
        atomic_thread_fence(memory_order_seq_cst);
        if (atomic_load(position) <= than && !atomic_load(&s->over)) {
            syscall(SYS_futex, &g->word, FUTEX_WAIT, word, NULL, NULL, 0);
        }
        atomic_store(&g->asleep, 0);
        if (atomic_load(&s->over)) return atomic_load(position);
    }
    return atomic_load(position);
}

static void written(int file, const void *from, size_t n, int64_t at) {
    if (pwrite(file, from, n, at) != (ssize_t)n) die("pwrite");
}

static void *send_all(void *arg) {
    for (int64_t sent = 0, made; (made = beyond(&s->to_send, &s->made, sent)) > sent; sent = made) {
        beyond(&s->sender, &s->acknowledged, sent - UNDER_WAY - 1);
        made = atomic_load(&s->made);
        int64_t room = RING_RECORDS - sent % RING_RECORDS;
        if (made - sent > room) made = sent + room;
        unsigned char *from = ring + sent % RING_RECORDS * RECORD;
        size_t n = (size_t)(made - sent) * RECORD;
        written(master_file, from, n, sent * RECORD);
        for (size_t gone = 0; gone < n;) {
            ssize_t more = send(wire, from + gone, n - gone, MSG_NOSIGNAL);
            if (more < 0) die("send");
            gone += (size_t)more;
        }
    }
    return arg;
}

static void *acknowledgements(void *arg) {
    for (int64_t told; recv(wire, &told, 8, MSG_WAITALL) == 8;) {
        atomic_store(&s->acknowledged, told);
        wake(&s->producer);
        wake(&s->sender);
    }
    if (!atomic_load(&s->over)) die("the slave ended");
    return arg;
}

static void *sync_often(void *file) {
    while (!atomic_load(&s->over)) {
        usleep(SYNC_US);
        if (fdatasync(*(int *)file) < 0) die("fdatasync");
    }
    return NULL;
}

static void *read_all(void *arg) {
    size_t size = (size_t)most * RECORD;
    const unsigned char *map = mmap(NULL, size, PROT_READ, MAP_SHARED, slave_file, 0);
    if (map == MAP_FAILED) die("mmap");
    for (int64_t seen = 0; seen < most;) {
        int64_t now, stored = beyond(&s->reader, &s->stored, seen);
        for (now = now_ns(); seen < stored; seen++) {
            int64_t due;
            memcpy(&due, map + seen * RECORD, 8);
            times[seen] = now - due;
        }
    }
    return arg;
}

static void *look_often(void *arg) {
    beyond(&s->reader, &s->stored, 0);
    for (int64_t stored = 0; stored < most && s->looks < most;) {
        usleep(LOOK_US);
        stored = atomic_load(&s->stored);
        int64_t late = now_ns() - due_ns(stored);
        times[s->looks++] = late > 0 ? late : 0;
    }
    return arg;
}

static void started(pthread_t *t, void *(*run)(void *), void *arg) {
    if (pthread_create(t, NULL, run, arg) != 0) die("pthread_create");
}

/* The process of the slave; ends with the stream. */
static void slave(Mode mode) {
    pthread_t reader, syncs;
    unsigned char *buffer = malloc(RECEIVE);
    int64_t come = 0;
    if (mode != WINDOW) started(&reader, mode == LAG ? read_all : look_often, NULL);
    started(&syncs, sync_often, &slave_file);
    for (ssize_t n; (n = recv(wire, buffer, RECEIVE, 0)) > 0;) {
        written(slave_file, buffer, (size_t)n, come);
        come += n;
        int64_t whole = come / RECORD;
        if (send(wire, &whole, 8, MSG_NOSIGNAL) != 8) die("send");
        atomic_store(&s->stored, whole);
        wake(&s->reader);
    }
    if (mode != WINDOW) pthread_join(reader, NULL);
    pthread_join(syncs, NULL);
    _exit(0);
}

static void make(int64_t n, int64_t due) {
    unsigned char *at = ring + n % RING_RECORDS * RECORD;
    memcpy(at, &due, 8);
    memset(at + 8, (int)n, RECORD - 8);
    atomic_store(&s->made, n + 1);
    wake(&s->to_send);
}

static void compute(int64_t rounds) {
    for (int64_t i = 0; i < rounds; i++) __asm__ volatile("");
}

/* Rounds of compute() that take so long, as processor time: whoever is preempted does not compute less. */
static int64_t rounds_of(int64_t ns) {
    int64_t best = INT64_MAX, rounds = 1000000;
    for (int i = 0; i < 20; i++) {
        int64_t begun = now_ns();
        compute(rounds);
        int64_t took = now_ns() - begun;
        if (took < best) best = took;
    }
    return ns * rounds / best;
}

static int64_t produce_window(int64_t ends, int64_t in_flight, int64_t work) {
    int64_t made = 0, seen = 0;
    while (now_ns() < ends && made < most) {
        for (; made < seen + in_flight && made < most; made++) {
            times[made] = now_ns();
            compute(work);
            make(made, times[made]);
        }
        int64_t acknowledged = beyond(&s->producer, &s->acknowledged, seen);
        for (int64_t now = now_ns(); seen < acknowledged; seen++) times[seen] = now - times[seen];
    }
    for (; seen < made; seen++) beyond(&s->producer, &s->acknowledged, seen), times[seen] = now_ns() - times[seen];
    return made;
}

static int64_t produce_due(void) {
    for (int64_t n = 0; n < most; n++) {
        int64_t due = due_ns(n);
        while (now_ns() < due) continue;
        beyond(&s->producer, &s->acknowledged, n - RING_RECORDS);
        make(n, due);
    }
    return most;
}

static double cpu_s(int who) {
    struct rusage u;
    getrusage(who, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* With room for all, as the files of a log have it: a write into new blocks waits for whole syncs. */
static int fresh(const char *directory, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (file < 0) die(path);
    errno = posix_fallocate(file, 0, most * RECORD);
    if (errno) die(path);
    return file;
}

static void *shared(size_t size) {
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) die("mmap");
    memset(at, 0, size);
    return at;
}

int main(int argc, char **argv) {
    static const char *names[] = {"window", "lag", "behind"};
    int ends[2];
    Mode mode = WINDOW;
    while (argc == 6 && mode < MODES && strcmp(argv[1], names[mode]) != 0) mode++;
    if (argc != 6 || mode == MODES) return fprintf(stderr, "see the head of bare_pair.c\n"), 2;
    if (mode == WINDOW && atoll(argv[4]) > RING_RECORDS) return fprintf(stderr, "in flight: at most %d\n", RING_RECORDS), 2;
    double seconds = atof(argv[3]);
    rate = atof(argv[4]);
    most = (int64_t)(seconds * (mode == WINDOW ? PER_S : rate));
    s = shared(sizeof *s);
    times = shared((size_t)most * sizeof *times);
    ring = shared((size_t)RING_RECORDS * RECORD);
    int64_t work = rounds_of(atoll(argv[5]));
    master_file = fresh(argv[2], "master"), slave_file = fresh(argv[2], "slave");
    over_loopback(ends);
    pid_t child = fork();
    wire = child == 0 ? ends[1] : ends[0];
    close(child == 0 ? ends[0] : ends[1]);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        slave(mode);
    }

    pthread_t sender, answers, syncs;
    started(&sender, send_all, NULL);
    started(&answers, acknowledgements, NULL);
    started(&syncs, sync_often, &master_file);
    s->begun = now_ns();
    int64_t made = mode != WINDOW ? produce_due() : produce_window(s->begun + (int64_t)(seconds * 1e9), atoll(argv[4]), work);
    for (int64_t seen = 0; seen < made;) seen = beyond(&s->producer, &s->acknowledged, seen);
    double took = (double)(now_ns() - s->begun) / 1e9;
    atomic_store(&s->over, 1);
    wake(&s->to_send);
    pthread_join(sender, NULL);
    pthread_join(syncs, NULL);
    shutdown(wire, SHUT_WR);
    wait(NULL);
    int64_t n = mode == BEHIND ? s->looks : made;
    qsort(times, (size_t)n, sizeof *times, ascending);
    printf("{\"per_s\":%.1f,\"p50_us\":%.2f,\"p99_us\":%.2f,\"p999_us\":%.2f,\"cpu_us\":%.3f}\n", (double)made / took,
           (double)times[n / 2] / 1e3, (double)times[n * 99 / 100] / 1e3, (double)times[n * 999 / 1000] / 1e3,
           (cpu_s(RUSAGE_SELF) + cpu_s(RUSAGE_CHILDREN)) * 1e6 / (double)made);
    return 0;
}
