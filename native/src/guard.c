/* See rmq_guard.h. The table of guarded maps grows in chunks that are never freed, so that the handler walks it without a lock;
 * a map that faults is in use, so its own row stands still meanwhile. What the handler calls is async-signal-safe. */
#define _GNU_SOURCE
#include "rmq_guard.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 64 };

typedef struct guarded {
    uintptr_t begin; /* 0: a free row. Stored last, cleared first */
    uintptr_t end;   /* the whole of the last page */
    rmq_lost *lost;
    const rmq_identity *file;
    int protection;
} guarded;

typedef struct chunk {
    guarded maps[CHUNK];
    struct chunk *next;
} chunk;

static chunk *first;
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction before;
static int installed;
static uintptr_t page_size;

static uintptr_t load(const uintptr_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static void store(uintptr_t *p, uintptr_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
static chunk *load_chunk(chunk *const *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }

/* ---- the handler */

static void note(rmq_lost *lost, int64_t begin, int64_t end) {
    int64_t was = rmq_load(&lost->begin);
    while (begin < was && !__atomic_compare_exchange_n(&lost->begin, &was, begin, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {}
    was = rmq_load(&lost->end);
    while (end > was && !__atomic_compare_exchange_n(&lost->end, &was, end, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {}
}

static int zeros(uintptr_t begin, uintptr_t end, int protection) {
    void *at = mmap((void *)begin, end - begin, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return 0;
    (void)madvise(at, end - begin, MADV_DONTFORK); /* as the map it stands in; a child that has it reads zeros */
    return 1;
}

static int replace(const guarded *m, uintptr_t begin, uintptr_t at) {
    uintptr_t from = at & ~(page_size - 1), to = from + page_size;
    struct stat s;
    /* A file that was cut has nothing behind its end: one map for all of it, as a map for each page would run out of maps. */
    if (stat(m->file->path, &s) == 0 && rmq_identity_is(m->file, &s) && (uint64_t)s.st_size <= from - begin) to = load(&m->end);
    note(m->lost, (int64_t)(from - begin), (int64_t)(to - begin)); /* first: who meets the zeros finds the note */
    return zeros(from, to, m->protection) || zeros(from, from + page_size, m->protection);
}

static int answered(uintptr_t at) {
    for (const chunk *c = load_chunk(&first); c != NULL; c = load_chunk(&c->next))
        for (int i = 0; i < CHUNK; i++) {
            uintptr_t begin = load(&c->maps[i].begin);
            if (begin != 0 && at >= begin && at < load(&c->maps[i].end)) return replace(&c->maps[i], begin, at);
        }
    return 0;
}

static void hand_on(int number, siginfo_t *info, void *context) {
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    } else if (info->si_code > 0 || before.sa_handler == SIG_DFL) {
        /* The default, which the kernel takes for a fault in any case: a fault comes again, what was sent is sent again. */
        struct sigaction fatal = {.sa_handler = SIG_DFL};
        sigaction(number, &fatal, NULL);
        if (info->si_code <= 0) raise(number);
    }
}

static void on_sigbus(int number, siginfo_t *info, void *context) {
    int kept = errno;
    if (info->si_code != BUS_ADRERR || !answered((uintptr_t)info->si_addr)) hand_on(number, info, context);
    errno = kept;
}

/* ---- the table */

static void fork_prepare(void) { pthread_mutex_lock(&changing); }
static void fork_parent(void) { pthread_mutex_unlock(&changing); }
static void fork_child(void) {
    /* What lies at these addresses in the child is not the parent's map. */
    for (chunk *c = first; c != NULL; c = c->next)
        for (int i = 0; i < CHUNK; i++) c->maps[i].begin = 0;
    pthread_mutex_unlock(&changing);
}

int rmq_guard_install(void) {
    struct sigaction ours = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    int rc = 0;
    pthread_mutex_lock(&changing);
    if (!installed) {
        page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
        rc = -pthread_atfork(fork_prepare, fork_parent, fork_child);
        if (rc == 0 && sigaction(SIGBUS, NULL, &before) < 0) rc = -errno; /* known before the handler can need it */
        if (rc == 0 && sigaction(SIGBUS, &ours, NULL) < 0) rc = -errno;
        installed = rc == 0;
    }
    pthread_mutex_unlock(&changing);
    return rc;
}

int rmq_guard_add(void *at, size_t n, const rmq_identity *file, int writable, rmq_lost *lost) {
    int number = 0, i = 0;
    rmq_publish(&lost->begin, INT64_MAX);
    rmq_publish(&lost->end, 0);
    pthread_mutex_lock(&changing);
    for (chunk **c = &first; number == 0; c = &(*c)->next) {
        if (*c == NULL) {
            chunk *more = calloc(1, sizeof *more);
            if (more == NULL) {
                number = -ENOMEM;
                break;
            }
            __atomic_store_n(c, more, __ATOMIC_RELEASE);
        }
        for (int row = 0; row < CHUNK && number == 0; row++, i++) {
            guarded *m = &(*c)->maps[row];
            if (m->begin != 0) continue;
            m->lost = lost;
            m->file = file;
            m->protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
            store(&m->end, ((uintptr_t)at + n + page_size - 1) & ~(page_size - 1));
            store(&m->begin, (uintptr_t)at);
            number = i + 1;
        }
    }
    pthread_mutex_unlock(&changing);
    return number;
}

void rmq_guard_remove(int number) {
    pthread_mutex_lock(&changing);
    chunk *c = first;
    for (int i = (number - 1) / CHUNK; i > 0; i--) c = c->next;
    store(&c->maps[(number - 1) % CHUNK].begin, 0);
    pthread_mutex_unlock(&changing);
}
