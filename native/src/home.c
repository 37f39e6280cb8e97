/* The directories that an open store holds on to (rmq_io.h). One writer; the checks run in any thread. */
#define _GNU_SOURCE
#include "home.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct watched {
    struct watched *next;
    dev_t device;
    ino_t inode;
    char path[];
} watched;

struct rmq_home {
    rmq_io table;
    watched *first;     /* what is checked; published whole */
    watched *old;       /* what is checked no more: another thread may still read it, so it lives as long as the table */
};

rmq_home *rmq_home_new(void) {
    rmq_home *h = calloc(1, sizeof *h);
    if (h == NULL) return NULL;
    h->table = *rmq_io_system();
    h->table.ctx = h;
    return h;
}

const rmq_io *rmq_home_table(rmq_home *h) { return &h->table; }

static void free_all(watched *w) {
    while (w != NULL) {
        watched *next = w->next;
        free(w);
        w = next;
    }
}

void rmq_home_free(rmq_home *h) {
    if (h == NULL) return;
    free_all(h->first);
    free_all(h->old);
    free(h);
}

int rmq_home_watch(rmq_home *h, const char *path) {
    struct stat st;
    if (stat(path, &st) < 0) return -errno;
    watched *w = malloc(sizeof *w + strlen(path) + 1);
    if (w == NULL) return -ENOMEM;
    w->next = h->first;
    w->device = st.st_dev;
    w->inode = st.st_ino;
    strcpy(w->path, path);
    __atomic_store_n(&h->first, w, __ATOMIC_RELEASE);
    return 0;
}

void rmq_home_forget(rmq_home *h) {
    watched *last = h->first;
    if (last == NULL) return;
    __atomic_store_n(&h->first, NULL, __ATOMIC_RELEASE);
    watched *first = last;
    while (last->next != NULL) last = last->next;
    last->next = h->old;
    h->old = first;
}

int rmq_home_check(const void *ctx) {
    const rmq_home *h = ctx;
    if (h == NULL) return 0;
    for (const watched *w = __atomic_load_n(&h->first, __ATOMIC_ACQUIRE); w != NULL; w = w->next) {
        struct stat st;
        if (stat(w->path, &st) < 0) {
            if (errno == ENOENT || errno == ENOTDIR) return -ESTALE;
            return -errno;
        }
        if (st.st_dev != w->device || st.st_ino != w->inode) return -ESTALE;
    }
    return 0;
}
