/* Listing the queues of a store (rmq_queue_dirs.h). */
#define _GNU_SOURCE
#include "rmq_queue_dirs.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "rmq_sweep.h"

enum { ODD = 1, NAME_DIGITS = 20, LISTING_SIZE = 16384 };

typedef struct listing {
    int fd;
    long size, at;
    _Alignas(8) char entries[LISTING_SIZE];
} listing;

typedef struct entry {
    uint64_t inode;
    int64_t offset;
    unsigned short size;
    unsigned char type;
    char name[];
} entry; /* struct linux_dirent64 */

typedef struct starts {
    int64_t *at;
    int64_t count, room;
    int64_t few[16];
} starts;

typedef struct walk {
    int base;
    rmq_topic_dir *topics;
    int64_t file_size, highest;
} walk;

static void begin(listing *l, int fd) {
    l->fd = fd;
    l->size = l->at = 0;
}

/* The next name but . and ..; NULL: no more, or an error, which is in *rc. */
static const entry *next_entry(listing *l, int *rc) {
    for (;;) {
        if (l->at >= l->size) {
            l->size = syscall(SYS_getdents64, l->fd, l->entries, sizeof l->entries);
            l->at = 0;
            if (l->size < 0) *rc = ODD;
            if (l->size <= 0) return NULL;
        }
        const entry *e = (const entry *)(const void *)(l->entries + l->at);
        l->at += e->size;
        if (strcmp(e->name, ".") != 0 && strcmp(e->name, "..") != 0) return e;
    }
}

/* A number as stores write it: up to `max`, of `digits` digits (0: as few as possible). -1: it is none. */
static int64_t number(const char *name, size_t digits, int64_t max) {
    size_t n = strlen(name);
    int64_t value = 0;
    if (n == 0 || n > NAME_DIGITS || (digits != 0 ? n != digits : name[0] == '0' && n > 1)) return -1;
    for (size_t i = 0; i < n; i++) {
        int digit = name[i] - '0';
        if (digit < 0 || digit > 9 || value > (max - digit) / 10) return -1;
        value = value * 10 + digit;
    }
    return value;
}

static int open_dir(int parent, const char *name) {
    return openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static int note(starts *s, int64_t start) {
    if (s->count == s->room) {
        int64_t room = s->room * 4;
        int64_t *more = realloc(s->at == s->few ? NULL : s->at, (size_t)room * sizeof *more);
        if (more == NULL) return -ENOMEM;
        if (s->at == s->few) memcpy(more, s->few, sizeof s->few);
        s->at = more;
        s->room = room;
    }
    s->at[s->count++] = start;
    return 0;
}

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int read_files(const walk *w, int fd, starts *s) {
    listing l; /* not zeroed: it is large */
    struct stat st;
    const entry *e;
    int rc = 0;
    begin(&l, fd);
    while (rc == 0 && (e = next_entry(&l, &rc)) != NULL) {
        int64_t start = e->type == DT_REG ? number(e->name, NAME_DIGITS, INT64_MAX) : -1;
        if (start < 0 || fstatat(fd, e->name, &st, AT_SYMLINK_NOFOLLOW) < 0) return ODD;
        if (!S_ISREG(st.st_mode) || st.st_size != w->file_size) return ODD;
        rc = note(s, start);
    }
    return rc;
}

/* One queue's directory: 0, ODD or -ENOMEM. */
static int read_queue(const walk *w, int topic, const char *name, rmq_queue_dir *q) {
    starts s = {.at = s.few, .room = sizeof s.few / sizeof s.few[0]};
    int fd = open_dir(topic, name);
    int rc = fd < 0 ? ODD : read_files(w, fd, &s);
    if (fd >= 0) close(fd);
    if (rc == 0) qsort(s.at, (size_t)s.count, sizeof *s.at, by_value);
    q->first = s.count > 0 ? s.at[0] : 0;
    q->count = s.count;
    for (int64_t i = 0; rc == 0 && i < s.count; i++)
        if (s.at[i] > w->highest || s.at[i] % w->file_size != 0 || s.at[i] - q->first != i * w->file_size) rc = ODD;
    if (s.at != s.few) free(s.at);
    return rc;
}

static int read_queues(const walk *w, int fd, rmq_topic_dir *t) {
    listing l; /* not zeroed: it is large */
    int64_t room = 0;
    const entry *e;
    int rc = 0;
    begin(&l, fd);
    while (rc == 0 && (e = next_entry(&l, &rc)) != NULL) {
        int64_t id = e->type == DT_DIR ? number(e->name, 0, INT32_MAX) : -1;
        if (id < 0) return ODD;
        if (t->count == room) {
            room = room == 0 ? 1 : room * 2;
            rmq_queue_dir *more = realloc(t->queues, (size_t)room * sizeof *more);
            if (more == NULL) return -ENOMEM;
            t->queues = more;
        }
        t->queues[t->count].queue_id = (int32_t)id;
        rc = read_queue(w, fd, e->name, &t->queues[t->count]);
        if (rc == 0) t->count++;
    }
    return rc;
}

static int read_topic(void *ctx, int64_t i) {
    const walk *w = ctx;
    rmq_topic_dir *t = &w->topics[i];
    int fd = open_dir(w->base, t->name);
    int rc = fd < 0 ? ODD : read_queues(w, fd, t);
    if (fd >= 0) close(fd);
    t->odd = rc != 0;
    return rc < 0 ? rc : 0;
}

int rmq_queue_dirs_list(const char *base, rmq_topic_dir *topics, int64_t count, int64_t file_size, int64_t highest) {
    walk w = {open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC), topics, file_size, highest};
    int rc = 0;
    if (w.base >= 0)
        rc = rmq_sweep_all(count, read_topic, &w, RMQ_SWEEP_THREADS, NULL);
    else
        for (int64_t i = 0; i < count; i++) topics[i].odd = 1;
    if (w.base >= 0) close(w.base);
    return rc;
}

int64_t rmq_queue_dir_lowest(int fd, int64_t from, int64_t file_size) {
    listing l; /* not zeroed: it is large */
    const entry *e;
    int64_t found = -ENOENT;
    int rc = 0;
    begin(&l, fd);
    errno = 0;
    while ((e = next_entry(&l, &rc)) != NULL) {
        int64_t start = number(e->name, NAME_DIGITS, INT64_MAX);
        if (start >= from && start % file_size == 0 && (found < 0 || start < found)) found = start;
    }
    return rc == 0 ? found : -errno;
}
