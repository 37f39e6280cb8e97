/* rmq_bytes.h, rmq_ring_memory.h, rmq_pages.h, rmq_fork.h: big-endian bytes, the doubly mapped ring, what fork leaves. */
#define _GNU_SOURCE
#include "check.h"
#include "rmq_bytes.h"
#include "rmq_fork.h"
#include "rmq_pages.h"
#include "rmq_ring_memory.h"
#include <string.h>
#include <sys/wait.h>

static void test_bytes(void) {
    unsigned char b[16];
    for (int shift = 0; shift < 8; shift++) { /* at every alignment */
        rmq_put64(b + shift, INT64_C(0x0102030405060708));
        CHECK(memcmp(b + shift, "\1\2\3\4\5\6\7\10", 8) == 0 && rmq_get64(b + shift) == INT64_C(0x0102030405060708));
        rmq_put32(b + shift, -2);
        CHECK(memcmp(b + shift, "\xff\xff\xff\xfe", 4) == 0 && rmq_get32(b + shift) == -2);
        rmq_put16(b + shift, INT16_MIN);
        CHECK(memcmp(b + shift, "\x80\0", 2) == 0 && rmq_get16(b + shift) == INT16_MIN);
    }
    rmq_put64(b, INT64_MIN);
    CHECK(rmq_get64(b) == INT64_MIN && b[0] == 0x80);
}

static void test_ring_memory(void) {
    enum { SIZE = 1 << 20 };
    for (int want_huge = 0; want_huge < 2; want_huge++) {
        int huge = want_huge;
        unsigned char *ring = NULL;
        CHECK(rmq_ring_memory_new(SIZE, 0, &huge, &ring) == 0);
        CHECK(((uintptr_t)ring & 4095) == 0 && ring[0] == 0 && ring[SIZE - 1] == 0);
        for (int i = 0; i < 100; i++) ring[SIZE - 50 + i] = (unsigned char)i; /* over the seam */
        for (int i = 0; i < 50; i++) CHECK(ring[SIZE - 50 + i] == i && ring[i] == 50 + i);
        CHECK(rmq_pages_populate(ring, SIZE) == 0);
        pid_t child = fork();
        if (child == 0) { /* neither half came along */
            unsigned char in_core;
            _exit(mincore(ring, 4096, &in_core) == -1 && mincore(ring + SIZE, 4096, &in_core) == -1 ? 0 : 1);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
        rmq_ring_memory_free(ring, SIZE);
    }
}

static void test_fork_word(void) {
    int *word = rmq_fork_word_new();
    CHECK(word != NULL && *word == 1);
    pid_t child = fork();
    if (child == 0) _exit(*word);
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(*word == 1);
    rmq_fork_word_free(word);
    rmq_fork_word_free(NULL);
}

int main(void) {
    limit_seconds(60);
    test_bytes();
    test_ring_memory();
    test_fork_word();
    return 0;
}
