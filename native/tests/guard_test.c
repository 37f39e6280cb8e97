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
static rmq_identity last; /* of the file that `mapped` made last */
static sigjmp_buf back;

static void former(int number) {
    (void)number;
    siglongjmp(back, 1);
}

static char paths[MANY * 2][4096];

static unsigned char *mapped(int *fd) {
    static int count;
    char *path = paths[count % (MANY * 2)];
    snprintf(path, sizeof paths[0], "%s/file%d", directory, count++);
    *fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    last = rmq_identity_of(path, *fd);
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
    rmq_identity file = last;
    int number = rmq_guard_add(at, SIZE, &file, 1, &lost);
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

static void test_a_file_without_a_descriptor(void) { /* its name, where that is still its own, says where it ends */
    int fd;
    rmq_lost lost;
    unsigned char *at = mapped(&fd);
    rmq_identity file = last;
    int number = rmq_guard_add(at, SIZE, &file, 1, &lost);
    CHECK(close(fd) == 0 && truncate(file.path, 10 * PAGE) == 0);
    CHECK(reads(at + 20 * PAGE) == 0 && rmq_lost_in(&lost, SIZE - 1, SIZE)); /* all behind the page, in one map */
    rmq_guard_remove(number);
    munmap(at, SIZE);

    at = mapped(&fd);
    file = last;
    number = rmq_guard_add(at, SIZE, &file, 1, &lost);
    CHECK(ftruncate(fd, 30 * PAGE) == 0 && unlink(file.path) == 0 && close(fd) == 0);
    fd = open(file.path, O_RDWR | O_CREAT | O_EXCL, 0600); /* an empty one has the name: it says nothing about the map */
    CHECK(fd >= 0 && close(fd) == 0);
    CHECK(reads(at + 40 * PAGE) == 0 && !rmq_lost_in(&lost, SIZE - 1, SIZE) && reads(at + 20 * PAGE) == 7);
    rmq_guard_remove(number);
    munmap(at, SIZE);
}

static void test_others_are_handed_on(void) {
    int fd, removed_fd;
    rmq_lost lost;
    unsigned char *other = mapped(&fd), *removed = mapped(&removed_fd);
    rmq_guard_remove(rmq_guard_add(removed, SIZE, &last, 1, &lost));
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
    static rmq_identity file[MANY];
    int fd[MANY], number[MANY];
    for (int i = 0; i < MANY; i++) {
        at[i] = mapped(&fd[i]);
        file[i] = last;
        number[i] = rmq_guard_add(at[i], SIZE, &file[i], 1, &lost[i]);
        CHECK(number[i] == i + 1);
    }
    rmq_guard_remove(number[100]);
    CHECK(rmq_guard_add(at[100], SIZE, &file[100], 1, &lost[100]) == 101);
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
        rmq_identity file = last;
        int number = rmq_guard_add(shared, SIZE, &file, 0, &lost);
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
    test_a_file_without_a_descriptor();
    test_others_are_handed_on();
    test_many_maps();
    test_threads_at_once();
    return 0;
}
