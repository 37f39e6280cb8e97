/* A word that a child of fork finds zeroed, so that it can tell that the store's threads and locks did not come along. */
#ifndef RMQ_FORK_H
#define RMQ_FORK_H
#include <stddef.h>
#include <sys/mman.h>
#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

static inline int *rmq_fork_word_new(void) {
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return NULL;
    if (madvise(at, 4096, MADV_WIPEONFORK) < 0) {
        munmap(at, 4096);
        return NULL;
    }
    *(int *)at = 1;
    return (int *)at;
}
static inline void rmq_fork_word_free(int *word) {
    if (word) munmap(word, 4096);
}
#endif
