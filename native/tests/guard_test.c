/* rmq_guard.h: a guarded map whose file is cut reads zeros and says so; every other SIGBUS is the former handler's. */
#define _GNU_SOURCE
#include "check.h"
#include "rmq_guard.h"
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, PAGES = 64, SIZE = PAGE * PAGES, MANY = 200 };

static const char *directory;
static sigjmp_buf back;

static void former(int number) {
    (void)number;
    siglongjmp(back, 1);
}

static unsigned char *mapped(int *fd) {
    char path[4096];
    static int count;
    snprintf(path, sizeof path, "%s/file%d", directory, count++);
    *fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(*fd >= 0 && ftruncate(*fd, SIZE) == 0);
    unsigned char *at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    CHECK(at != MAP_FAILED);
    memset(at, 7, SIZE);
    return at;
}

static int reads(const unsigned char *at) { /* the byte, or -1: SIGBUS reached the former handler */
    if (sigsetjmp(back, 1)) return -1;
    return *(const volatile unsigned char *)at;
}

static void test_a_cut_file(void) {
    int fd;
    rmq_lost lost;
    unsigned char *at = mapped(&fd);
    int number = rmq_guard_add(at, SIZE, fd, 1, &lost);
    CHECK(number > 0 && !rmq_lost_any(&lost) && !rmq_lost_in(&lost, 0, SIZE));
    CHECK(ftruncate(fd, 10 * PAGE + 1) == 0);
    CHECK(reads(at + 10 * PAGE) == 7 && !rmq_lost_any(&lost)); /* the page in which the file ends is there */
    CHECK(reads(at + 20 * PAGE + 5) == 0 && rmq_lost_any(&lost));
    CHECK(rmq_lost_in(&lost, 20 * PAGE, 20 * PAGE + 1) && rmq_lost_in(&lost, SIZE - 1, SIZE));
    CHECK(!rmq_lost_in(&lost, 0, 20 * PAGE) && reads(at) == 7);
    rmq_guard_touch(at + 9 * PAGE, 3 * PAGE); /* one before it: the part grows */
    CHECK(!rmq_lost_in(&lost, 0, 11 * PAGE) && rmq_lost_in(&lost, 11 * PAGE, 11 * PAGE + 1));
    at[30 * PAGE] = 9; /* as a put: into what is nowhere, but the process lives */
    CHECK(reads(at + 30 * PAGE) == 9);
    rmq_guard_remove(number);
    CHECK(munmap(at, SIZE) == 0 && close(fd) == 0);
}

static void test_others_are_handed_on(void) {
    int fd, removed_fd;
    rmq_lost lost;
    unsigned char *other = mapped(&fd), *removed = mapped(&removed_fd);
    rmq_guard_remove(rmq_guard_add(removed, SIZE, removed_fd, 1, &lost));
    CHECK(ftruncate(fd, 0) == 0 && ftruncate(removed_fd, 0) == 0);
    CHECK(reads(other) == -1 && reads(removed) == -1 && !rmq_lost_any(&lost));
    if (!sigsetjmp(back, 1)) {
        raise(SIGBUS);
        CHECK(!"the former handler was not called");
    }
    munmap(other, SIZE), munmap(removed, SIZE), close(fd), close(removed_fd);
}

static void test_many_maps(void) { /* more than a chunk; numbers are used again */
    static rmq_lost lost[MANY];
    static unsigned char *at[MANY];
    int fd[MANY], number[MANY];
    for (int i = 0; i < MANY; i++) {
        at[i] = mapped(&fd[i]);
        number[i] = rmq_guard_add(at[i], SIZE, fd[i], 1, &lost[i]);
        CHECK(number[i] == i + 1);
    }
    rmq_guard_remove(number[100]);
    CHECK(rmq_guard_add(at[100], SIZE, fd[100], 1, &lost[100]) == 101);
    for (int i = 0; i < MANY; i++) {
        CHECK(ftruncate(fd[i], 0) == 0 && reads(at[i] + SIZE - 1) == 0);
        for (int other = 0; other < MANY; other++) CHECK(rmq_lost_any(&lost[other]) == (other <= i));
    }
    for (int i = 0; i < MANY; i++) {
        rmq_guard_remove(number[i]);
        munmap(at[i], SIZE);
        close(fd[i]);
    }
}

static unsigned char *shared;
static void *read_all(void *sum) {
    for (int i = 0; i < PAGES; i++) *(int *)sum += *(volatile unsigned char *)(shared + (size_t)i * PAGE);
    return NULL;
}

static void test_threads_at_once(void) {
    for (int round = 0; round < 50; round++) {
        int fd, sum[4] = {0};
        pthread_t threads[4];
        rmq_lost lost;
        shared = mapped(&fd);
        int number = rmq_guard_add(shared, SIZE, fd, 0, &lost);
        CHECK(ftruncate(fd, PAGE) == 0);
        for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, read_all, &sum[i]) == 0);
        for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0 && sum[i] == 7);
        CHECK(rmq_lost_in(&lost, PAGE, PAGE + 1) && !rmq_lost_in(&lost, 0, PAGE));
        rmq_guard_remove(number);
        munmap(shared, SIZE);
        close(fd);
    }
}

int main(int count, char **arguments) {
    struct sigaction action = {.sa_handler = former};
    CHECK(count == 2);
    directory = arguments[1];
    limit_seconds(60);
    CHECK(sigaction(SIGBUS, &action, NULL) == 0);
    CHECK(rmq_guard_install() == 0 && rmq_guard_install() == 0);
    test_a_cut_file();
    test_others_are_handed_on();
    test_many_maps();
    test_threads_at_once();
    return 0;
}
